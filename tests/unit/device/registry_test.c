// The table of back ends: what every descriptor must keep to, whichever they are.
#include "support.h"

#include "device/registry.h"

#include <string.h>

static void names_lead_to_their_back_ends(void **state) {
    (void)state;
    for (const rn_backend *const *b = rn_backends; *b; b++) {
        assert_ptr_equal(*b, rn_backend_find(rn_str_from((*b)->name)));
        assert_true((*b)->parse && (*b)->open);
    }
    assert_null(rn_backend_find(RN_STR("")));
    assert_null(rn_backend_find(RN_STR("cp")));
    assert_null(rn_backend_find(RN_STR("cpu:0")));
}

// "auto" must end with something that is always there.
static void auto_tries_one_after_the_other_and_the_host_last(void **state) {
    (void)state;
    uint32_t count = 0, ranked = 0;
    while (rn_backend_auto(count + 1))
        count++;
    assert_true(count > 0 && rn_backend_auto(count)->is_host);
    for (const rn_backend *const *b = rn_backends; *b; b++)
        ranked += (*b)->auto_rank > 0;
    assert_int_equal(count, ranked); // no number twice, none left out
    assert_null(rn_backend_auto(0));
}

static void targets_are_listed_for_hints(void **state) {
    (void)state;
    char text[256], cut[8];
    rn_backend_list_targets(text, sizeof text);
    assert_string_equal(
        text, "cpu, cuda, cuda:N, xla:cpu, xla:cuda, xla:PLUGIN, neuron:N-M, ort and sim");
    rn_backend_list_targets(cut, sizeof cut);
    assert_string_equal(cut, "cpu, cu");
}

// They are told apart in files of rates and in JSON by these names.
static void own_rates_have_names_and_units(void **state) {
    (void)state;
    for (const rn_backend *const *b = rn_backends; *b; b++) {
        assert_true((*b)->rate_count <= RN_OWN_RATES);
        for (uint32_t i = 0; i < (*b)->rate_count; i++) {
            const rn_own_rate *rate = &(*b)->rates[i];
            assert_ptr_equal(&rate->info, rn_device_rate_info((*b)->name, i));
            assert_true(rate->key[0] && rate->info.name[0] && rate->info.unit[0]);
            assert_true(rate->unit > 0 && rate->info.scale > 0);
            assert_true(rate->from != RN_RATE_FROM_ONE_ROW || (rate->what && rate->dtype));
            for (uint32_t o = 0; o < i; o++)
                assert_string_not_equal(rate->key, (*b)->rates[o].key);
        }
        assert_null(rn_device_rate_info((*b)->name, (*b)->rate_count));
    }
    assert_null(rn_device_rate_info("nobody:0", 0));
}

static void target_is_parsed_and_opened_by_its_back_end(void **state) {
    (void)state;
    rn_device *device;
    rn_target target = {.backend = rn_backend_find(RN_STR("null"))};
    assert_fails(RN_INVALID, target.backend->parse(RN_STR("1"), &target));
    assert_ok(target.backend->parse((rn_str){0}, &target));
    assert_string_equal(target.name, "null");
    assert_ok(target.backend->open(&target, 0, &device));
    assert_string_equal(rn_device_target(device), "null");
    rn_device_destroy(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_lead_to_their_back_ends),
        cmocka_unit_test(auto_tries_one_after_the_other_and_the_host_last),
        cmocka_unit_test(targets_are_listed_for_hints),
        cmocka_unit_test(own_rates_have_names_and_units),
        cmocka_unit_test(target_is_parsed_and_opened_by_its_back_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
