// read_bench.c — reading a file past the page cache: dd and fio against the reader's two engines.
//
// In each round all contenders read the same slice of the file, one after the other, so that a disk
// whose speed changes from second to second treats them alike; the next round takes the next slice.
// The best round counts; the median is shown beside it. Then the same out of the page cache,
// against plain read().
#include "base/clock.h"
#include "base/reader.h"
#include <ration/text.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS_MAX  64
#define ABSENT      (-1.0)
#define CHUNK_BYTES ((size_t)4 << 20)
#define SLICE_BYTES ((uint64_t)256 << 20)

typedef struct bench_settings {
    char path[512];
    bool made; // by us: removed at the end
    uint64_t bytes;
    uint64_t slice_bytes; // read in one go; divides the file, a multiple of 4 MiB where there are
                          // several
    uint64_t slice_offset;
    int rounds;
    bool json;
    size_t buffer_bytes, request_bytes; // 0: the reader's defaults
} bench_settings;

typedef struct contender {
    const char *name;
    bool peer; // not ration
    // Bytes a second; 0: it did not work; ABSENT: not installed, or forbidden by the system.
    double (*run)(const bench_settings *settings, const char *argument);
    const char *argument;
    double rates[ROUNDS_MAX];
} contender;

static char made_path[512]; // what to remove

static void remove_made(void) {
    if (made_path[0]) unlink(made_path);
}

static void stop(int signal_number) {
    remove_made();
    _exit(128 + signal_number);
}

static void die(const char *what) {
    fprintf(stderr, "read_bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double rate(uint64_t bytes, uint64_t begin_ns) {
    return (double)bytes / ((double)(rn_clock_ns() - begin_ns) / 1e9);
}

// ---- the contenders ----------------------------------------------------------------------------

static bool installed(const char *program) {
    char command[64];
    snprintf(command, sizeof command, "command -v %s >/dev/null", program);
    return system(command) == 0;
}

// "1073741824 bytes (1.1 GB, 1.0 GiB) copied, 0.350945 s, 3.1 GB/s"
static double run_dd(const bench_settings *settings, const char *argument) {
    char command[1024], line[256];
    if (!installed("dd")) return ABSENT;
    snprintf(command, sizeof command,
             "LC_ALL=C dd if='%s' of=/dev/null iflag=direct,skip_bytes,count_bytes skip=%llu "
             "count=%llu %s 2>&1",
             settings->path, (unsigned long long)settings->slice_offset,
             (unsigned long long)settings->slice_bytes, argument);
    FILE *pipe = popen(command, "r");
    double bytes = 0, seconds = 0;
    while (pipe && fgets(line, sizeof line, pipe)) {
        const char *copied = strstr(line, "copied, ");
        if (copied && sscanf(line, "%lf bytes", &bytes) == 1)
            seconds = strtod(copied + strlen("copied, "), NULL);
    }
    if (pipe) pclose(pipe);
    return seconds > 0 ? bytes / seconds : 0;
}

// The terse format's 7th field is the read bandwidth in KiB/s.
static double run_fio(const bench_settings *settings, const char *argument) {
    char command[1024], line[4096];
    if (!installed("fio")) return ABSENT;
    snprintf(command, sizeof command,
             "fio --minimal --name=read --readonly --filename='%s' --offset=%llu --size=%llu "
             "--direct=1 --rw=read %s 2>/dev/null",
             settings->path, (unsigned long long)settings->slice_offset,
             (unsigned long long)settings->slice_bytes, argument);
    FILE *pipe = popen(command, "r");
    double kib = 0;
    while (pipe && fgets(line, sizeof line, pipe)) {
        const char *field = line;
        for (int i = 1; i < 7 && field; i++)
            field = (field = strchr(field, ';')) ? field + 1 : NULL;
        if (field) kib = strtod(field, NULL);
    }
    if (pipe) pclose(pipe);
    return kib * 1024;
}

static rn_status read_slice(rn_reader *reader, const bench_settings *settings) {
    rn_extent slice = {.offset = settings->slice_offset, .bytes = settings->slice_bytes};
    rn_reader_piece piece;
    RN_TRY(rn_reader_start(reader, &slice, 1));
    for (;;) {
        RN_TRY(rn_reader_next(reader, &piece));
        if (piece.bytes == 0) return RN_OK;
        rn_reader_release(reader, &piece);
    }
}

static double run_ration(const bench_settings *settings, rn_reader_engine engine) {
    rn_reader_options options = {
        .engine = engine,
        .buffer_bytes = settings->buffer_bytes,
        .request_bytes = settings->request_bytes,
    };
    rn_reader *reader;
    double result = 0;
    rn_status status =
        rn_reader_create(&(rn_reader_file){.path = settings->path}, 1, &options, &reader);
    if (status == RN_UNSUPPORTED) return ABSENT;
    uint64_t begin = rn_clock_ns();
    if (status == RN_OK) status = read_slice(reader, settings);
    if (status == RN_OK) result = rate(settings->slice_bytes, begin);
    if (status != RN_OK) fprintf(stderr, "read_bench: %s\n", rn_last_error()->message);
    rn_reader_destroy(reader);
    return result;
}

static double run_uring(const bench_settings *settings, const char *argument) {
    (void)argument;
    return run_ration(settings, RN_READER_URING);
}

static double run_threads(const bench_settings *settings, const char *argument) {
    (void)argument;
    return run_ration(settings, RN_READER_THREADS);
}

// Plain read() of a cached file, a chunk at a time.
static double run_read(const bench_settings *settings, const char *argument) {
    (void)argument;
    int fd = open(settings->path, O_RDONLY | O_CLOEXEC);
    char *chunk = malloc(RN_READER_REQUEST_BYTES);
    if (fd < 0 || !chunk) die(settings->path);
    memset(chunk, 0, RN_READER_REQUEST_BYTES);
    uint64_t begin = rn_clock_ns(), total = 0;
    for (ssize_t got = 1; got > 0 && total < settings->slice_bytes; total += (uint64_t)got)
        got = pread(fd, chunk, RN_READER_REQUEST_BYTES, (off_t)(settings->slice_offset + total));
    double result = rate(total, begin);
    free(chunk);
    close(fd);
    return result;
}

static contender cold[] = {
    {"dd iflag=direct bs=4M", true, run_dd, "bs=4M", {0}},
    {"fio psync 1M", true, run_fio, "--ioengine=psync --bs=1M", {0}},
    {"fio libaio 1M x16", true, run_fio, "--ioengine=libaio --bs=1M --iodepth=16", {0}},
    {"fio io_uring 512k x8", true, run_fio, "--ioengine=io_uring --bs=512k --iodepth=8", {0}},
    {"fio io_uring 512k x16", true, run_fio, "--ioengine=io_uring --bs=512k --iodepth=16", {0}},
    {"fio io_uring 4M x4", true, run_fio, "--ioengine=io_uring --bs=4M --iodepth=4", {0}},
    {"ration io_uring", false, run_uring, NULL, {0}},
    {"ration threads", false, run_threads, NULL, {0}},
};
static contender warm[] = {
    {"read() 1M", true, run_read, NULL, {0}},
    {"ration io_uring", false, run_uring, NULL, {0}},
    {"ration threads", false, run_threads, NULL, {0}},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

// ---- the file ----------------------------------------------------------------------------------

static void drop_pages(const bench_settings *settings) {
    int fd = open(settings->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) die(settings->path);
    (void)fsync(fd); // dirty pages are not dropped
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

// Every 8 bytes differ, so that no layer below can store or send less than all of it.
static void make_file(bench_settings *settings) {
    uint64_t *chunk = aligned_alloc(4096, CHUNK_BYTES), state = 1;
    int fd = open(settings->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_DIRECT, 0600);
    if (fd < 0 && errno == EINVAL)
        fd = open(settings->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || !chunk) die(settings->path);
    snprintf(made_path, sizeof made_path, "%s", settings->path);
    settings->bytes -= settings->bytes % CHUNK_BYTES;
    for (uint64_t at = 0; at < settings->bytes; at += CHUNK_BYTES) {
        for (size_t i = 0; i < CHUNK_BYTES / 8; i++)
            chunk[i] = state = state * 6364136223846793005u + 1442695040888963407u;
        if (write(fd, chunk, CHUNK_BYTES) != (ssize_t)CHUNK_BYTES) die(settings->path);
    }
    free(chunk);
    close(fd);
}

// ---- rounds and printing -----------------------------------------------------------------------

static int compare_rates(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run_rounds(bench_settings *settings, contender *list, size_t count, bool drop) {
    for (int round = 0; round < settings->rounds; round++) {
        settings->slice_offset = (uint64_t)round * settings->slice_bytes % settings->bytes;
        for (size_t i = 0; i < count; i++) {
            if (drop)
                drop_pages(settings);
            else
                (void)run_read(settings, NULL);
            // Each round starts with another contender, so that none always follows the same one.
            contender *one = &list[(i + (size_t)round) % count];
            one->rates[round] = one->run(settings, one->argument);
        }
    }
    for (size_t i = 0; i < count; i++)
        qsort(list[i].rates, (size_t)settings->rounds, sizeof(double), compare_rates);
}

static double best(const contender *one, int rounds) {
    return one->rates[rounds - 1];
}

static double best_peer(const contender *list, size_t count, int rounds) {
    double top = 0;
    for (size_t i = 0; i < count; i++)
        if (list[i].peer && best(&list[i], rounds) > top) top = best(&list[i], rounds);
    return top;
}

static void print_table(const char *title, const contender *list, size_t count, int rounds) {
    double top = best_peer(list, count, rounds);
    printf("%s\n  %-30s %8s %8s  %s\n", title, "", "best", "median", "of the best peer");
    for (size_t i = 0; i < count; i++) {
        if (best(&list[i], rounds) <= 0) {
            const char *absent = list[i].peer ? "not installed" : "forbidden here";
            printf("  %-30s %s\n", list[i].name, best(&list[i], rounds) < 0 ? absent : "failed");
            continue;
        }
        printf("  %-30s %8.2f %8.2f", list[i].name, best(&list[i], rounds) / 1e9,
               list[i].rates[rounds / 2] / 1e9);
        if (!list[i].peer && top > 0) printf("  %.1f %%", 100 * best(&list[i], rounds) / top);
        printf("\n");
    }
}

static void print_json(const char *title, const contender *list, size_t count, int rounds) {
    double top = best_peer(list, count, rounds);
    printf("  \"%s\": [\n", title);
    for (size_t i = 0; i < count; i++)
        printf("    {\"name\": \"%s\", \"best_bytes_per_s\": %.0f, \"median_bytes_per_s\": %.0f, "
               "\"of_best_peer\": %.4f}%s\n",
               list[i].name, best(&list[i], rounds), list[i].rates[rounds / 2],
               top > 0 ? best(&list[i], rounds) / top : 0, i + 1 < count ? "," : "");
    printf("  ]");
}

static void print_all(const bench_settings *settings) {
    if (settings->json) {
        printf("{\n  \"file_bytes\": %llu,\n  \"rounds\": %d,\n",
               (unsigned long long)settings->bytes, settings->rounds);
        print_json("cold", cold, COUNT(cold), settings->rounds);
        printf(",\n");
        print_json("warm", warm, COUNT(warm), settings->rounds);
        printf("\n}\n");
        return;
    }
    printf("%s, %d rounds, GB/s\n", rn_size_format(settings->bytes).text, settings->rounds);
    print_table("not cached", cold, COUNT(cold), settings->rounds);
    print_table("cached", warm, COUNT(warm), settings->rounds);
}

// ---- the command line --------------------------------------------------------------------------

static uint64_t parse_size(const char *text) {
    uint64_t bytes;
    if (rn_size_parse((rn_str){text, strlen(text)}, 0, &bytes) == RN_OK) return bytes;
    fprintf(stderr, "read_bench: %s\n", rn_last_error()->message);
    exit(2);
}

static void usage(void) {
    fprintf(stderr, "usage: read_bench [--file F | --size N --dir D] [--rounds N] [--json]\n"
                    "                  [--buffer N] [--request N]\n");
    exit(2);
}

// Where the program lies: the build folder's file system.
static void default_folder(char *out, size_t capacity) {
    char self[512] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) snprintf(self, sizeof self, "./x");
    snprintf(out, capacity, "%s", dirname(self));
}

static void parse(int argc, char **argv, bench_settings *settings) {
    static const struct option names[] = {
        {"file", 1, NULL, 'f'},    {"size", 1, NULL, 's'}, {"dir", 1, NULL, 'd'},
        {"rounds", 1, NULL, 'r'},  {"json", 0, NULL, 'j'}, {"buffer", 1, NULL, 'b'},
        {"request", 1, NULL, 'q'}, {NULL, 0, NULL, 0},
    };
    char folder[400];
    default_folder(folder, sizeof folder);
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (option) {
        case 'f':
            snprintf(settings->path, sizeof settings->path, "%s", optarg);
            break;
        case 's':
            settings->bytes = parse_size(optarg);
            break;
        case 'd':
            snprintf(folder, sizeof folder, "%s", optarg);
            break;
        case 'r':
            settings->rounds = atoi(optarg);
            break;
        case 'j':
            settings->json = true;
            break;
        case 'b':
            settings->buffer_bytes = parse_size(optarg);
            break;
        case 'q':
            settings->request_bytes = parse_size(optarg);
            break;
        default:
            usage();
        }
    }
    if (optind != argc || strchr(settings->path, '\'') || settings->rounds < 1 ||
        settings->rounds > ROUNDS_MAX)
        usage();
    settings->made = settings->path[0] == '\0';
    if (settings->made)
        snprintf(settings->path, sizeof settings->path, "%s/read_bench-%d.tmp", folder,
                 (int)getpid());
}

int main(int argc, char **argv) {
    bench_settings settings = {.bytes = (uint64_t)2 << 30, .rounds = 7};
    parse(argc, argv, &settings);
    atexit(remove_made);
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    if (settings.made) {
        make_file(&settings);
    } else {
        FILE *file = fopen(settings.path, "rb");
        if (!file || fseek(file, 0, SEEK_END) != 0) die(settings.path);
        settings.bytes = (uint64_t)ftell(file);
        fclose(file);
    }
    bool sliced = settings.bytes % SLICE_BYTES == 0;
    settings.slice_bytes = sliced ? SLICE_BYTES : settings.bytes;
    run_rounds(&settings, cold, COUNT(cold), true);
    run_rounds(&settings, warm, COUNT(warm), false);
    print_all(&settings);
    return 0;
}
