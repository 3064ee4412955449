// track_memory.cpp — introduces scopes, stages and the budget, from C++17.
#include <ration/ration.h>

#include <cstdio>
#include <vector>

// Memory of our own, charged to the ledger while it lives.
class tracked {
  public:
    explicit tracked(size_t bytes) : bytes_(bytes) {
        status = rn_budget_charge(account, nullptr, bytes);
        if (status == RN_OK) memory_.resize(bytes);
    }
    ~tracked() {
        if (status == RN_OK) rn_ledger_release(account, nullptr, bytes_);
    }
    tracked(const tracked &) = delete;
    tracked &operator=(const tracked &) = delete;
    rn_status status;

  private:
    static constexpr rn_account account = {RN_DEVICE_HOST, RN_PURPOSE_ACTIVATIONS, nullptr};
    size_t bytes_;
    std::vector<char> memory_;
};

int main() {
    rn_log_set(rn_sink_file(stderr), RN_LOG_TEXT, RN_LOG_INFO);
    if (rn_budget_set(RN_DEVICE_HOST, 0, 32u << 20) != RN_OK) return 1;
    rn_stage("start");
    rn_scope scope;
    rn_scope_begin(&scope, "forward", RN_DEVICE_HOST);
    {
        tracked first(8u << 20), second(4u << 20);
        tracked too_much(64u << 20);
        if (too_much.status == RN_OVER_BUDGET &&
            rn_refusal_print(rn_last_refusal(), rn_sink_file(stdout)) != RN_OK)
            return 1;
    }
    rn_scope_stats stats = rn_scope_end(&scope);
    rn_stage("final_cleanup");
    std::printf("forward: peak %s, %llu allocations\n", rn_size_format(stats.peak_allocated).text,
                static_cast<unsigned long long>(stats.num_allocations));
    return 0;
}
