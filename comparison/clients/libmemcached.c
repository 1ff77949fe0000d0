/* Asks servers through libmemcached, a handle for each thread, and prints what Bench.java prints.
 *
 * libmemcached HOST:PORT[,HOST:PORT...] OBJECTS MIN_BYTES MAX_BYTES KEYS_PER_GET SECS THREADS...
 */
#include <libmemcached/memcached.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VALUES = 101, PREPARING = 8, KEYS_PER_GET_MAX = 1000, THREADS_MAX = 1000 };

static long objects, keys_per_get;
static char (*keys)[32];
static char *values[VALUES];
static size_t value_bytes[VALUES];
static const char *configuration;

struct work {
    pthread_t thread;
    long number, threads;
    double secs; /* 0: store the objects */
    long sets, gets, misses;
    double set_secs, get_secs;
};

static double clock_secs(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void fail(memcached_st *memc, const char *what) {
    fprintf(stderr, "%s: %s\n", what, memcached_last_error_message(memc));
    exit(1);
}

static void set(memcached_st *memc, long number) {
    const char *key = keys[number];
    if (memcached_set(memc, key, 16, values[number % VALUES], value_bytes[number % VALUES], 0, 0) != MEMCACHED_SUCCESS)
        fail(memc, "a set");
}

static long get(memcached_st *memc, unsigned *seed) {
    const char *asked[KEYS_PER_GET_MAX];
    size_t lengths[KEYS_PER_GET_MAX];
    memcached_return_t rc;
    size_t bytes;
    uint32_t flags;
    long found = 0;
    /* Distinct, as in load.rs. */
    long first = rand_r(seed) % objects, step = 1 + rand_r(seed) % (objects / keys_per_get);
    for (long i = 0; i < keys_per_get; i++) {
        asked[i] = keys[(first + i * step) % objects];
        lengths[i] = 16;
    }
    if (keys_per_get == 1) {
        char *value = memcached_get(memc, asked[0], 16, &bytes, &flags, &rc);
        if (rc != MEMCACHED_SUCCESS && rc != MEMCACHED_NOTFOUND) fail(memc, "a get");
        found = rc == MEMCACHED_SUCCESS;
        free(value);
        return found;
    }
    if (memcached_mget(memc, asked, lengths, keys_per_get) != MEMCACHED_SUCCESS) fail(memc, "a get");
    memcached_result_st result;
    memcached_result_create(memc, &result);
    while (memcached_fetch_result(memc, &result, &rc)) found++;
    memcached_result_free(&result);
    return found;
}

static void *run(void *argument) {
    struct work *work = argument;
    memcached_st *memc = memcached(configuration, strlen(configuration));
    unsigned seed = work->number + 1;
    if (!memc) exit(1);
    if (work->secs == 0) {
        for (long number = work->number; number < objects; number += work->threads) set(memc, number);
    } else {
        double now = clock_secs(CLOCK_MONOTONIC), end = now + work->secs;
        while (now < end) {
            double start = now;
            if (rand_r(&seed) % 10 == 0) {
                set(memc, rand_r(&seed) % objects);
                now = clock_secs(CLOCK_MONOTONIC);
                work->sets++;
                work->set_secs += now - start;
            } else {
                work->misses += keys_per_get - get(memc, &seed);
                now = clock_secs(CLOCK_MONOTONIC);
                work->gets++;
                work->get_secs += now - start;
            }
        }
    }
    memcached_free(memc);
    return NULL;
}

static struct work in_parallel(long threads, double secs) {
    static struct work works[THREADS_MAX];
    struct work all = {0};
    for (long i = 0; i < threads; i++) {
        works[i] = (struct work){.number = i, .threads = threads, .secs = secs};
        pthread_create(&works[i].thread, NULL, run, &works[i]);
    }
    for (long i = 0; i < threads; i++) {
        pthread_join(works[i].thread, NULL);
        all.sets += works[i].sets;
        all.gets += works[i].gets;
        all.misses += works[i].misses;
        all.set_secs += works[i].set_secs;
        all.get_secs += works[i].get_secs;
    }
    return all;
}

/* "--SERVER=a --SERVER=b --DISTRIBUTION=consistent", as its documentation shows. */
static char *configured(char *servers) {
    char *text = calloc(1, 10 * strlen(servers) + 100);
    for (char *server = strtok(servers, ","); server; server = strtok(NULL, ",")) {
        strcat(strcat(strcat(text, "--SERVER="), server), " ");
    }
    return strcat(text, "--DISTRIBUTION=consistent");
}

int main(int argc, char **argv) {
    if (argc < 7) return fprintf(stderr, "see the head of libmemcached.c\n"), 2;
    configuration = configured(argv[1]);
    objects = atol(argv[2]);
    long min_bytes = atol(argv[3]), max_bytes = atol(argv[4]);
    keys_per_get = atol(argv[5]);
    double secs = atof(argv[6]);
    if (keys_per_get < 1 || objects < keys_per_get || keys_per_get > KEYS_PER_GET_MAX) return 2;
    keys = malloc(objects * sizeof *keys);
    for (long i = 0; i < objects; i++) snprintf(keys[i], sizeof *keys, "key:%012ld", i);
    for (long i = 0; i < VALUES; i++) {
        value_bytes[i] = min_bytes + (max_bytes - min_bytes) * i / (VALUES - 1);
        values[i] = malloc(value_bytes[i] + 1);
        for (size_t at = 0; at < value_bytes[i]; at++) values[i][at] = "larder "[at % 7];
    }
    in_parallel(PREPARING, 0);
    in_parallel(PREPARING, 1);
    puts("ready");
    fflush(stdout);
    for (int i = 7; i < argc; i++) {
        long threads = atol(argv[i]);
        if (threads < 1 || threads > THREADS_MAX) return 2;
        double start = clock_secs(CLOCK_MONOTONIC), cpu = clock_secs(CLOCK_PROCESS_CPUTIME_ID);
        struct work all = in_parallel(threads, secs);
        double elapsed = clock_secs(CLOCK_MONOTONIC) - start;
        printf("%ld %.1f %.3f %.3f %.3f %ld\n", threads, (all.sets + all.gets) / elapsed,
               1e3 * all.set_secs / (all.sets ? all.sets : 1), 1e3 * all.get_secs / (all.gets ? all.gets : 1),
               (clock_secs(CLOCK_PROCESS_CPUTIME_ID) - cpu) / elapsed, all.misses);
        fflush(stdout);
    }
    return 0;
}
