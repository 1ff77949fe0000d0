/* Threads share a pool; a process forks: threads SERVER... */
#include "transcript.h"
#include <libmemcached/util.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8
#define ROUNDS 300

static memcached_pool_st *pool;

static void *work(void *argument)
{
  long number = (long) argument, good = 0;
  for (int i = 0; i < ROUNDS; i++) {
    memcached_return_t rc;
    memcached_st *client = memcached_pool_pop(pool, true, &rc);
    if (client == NULL) {
      break;
    }
    char key[40], value[40];
    int length = sprintf(key, "thread%ld:%d", number, i % 10);
    sprintf(value, "%ld %d", number, i);
    memcached_set(client, key, (size_t) length, S(value), 0, 0);
    size_t value_length;
    uint32_t flags;
    char *back = memcached_get(client, key, (size_t) length, &value_length, &flags, &rc);
    good += back != NULL && value_length == strlen(value) && memcmp(back, value, value_length) == 0;
    free(back);
    memcached_pool_push(pool, client);
  }
  return (void *) good;
}

static void all_threads(void)
{
  pthread_t threads[THREADS];
  for (long i = 0; i < THREADS; i++) {
    pthread_create(&threads[i], NULL, work, (void *) i);
  }
  long good = 0;
  for (int i = 0; i < THREADS; i++) {
    void *result;
    pthread_join(threads[i], &result);
    good += (long) result;
  }
  say("%ld of %d values came back", good, THREADS * ROUNDS);
}

static void exhausted(void)
{
  memcached_st *taken[5] = {NULL};
  for (int i = 0; i < 5; i++) {
    memcached_return_t rc = MEMCACHED_MAXIMUM_RETURN;
    taken[i] = memcached_pool_pop(pool, false, &rc);
    say("pop %d: %d, %s", i, taken[i] != NULL, taken[i] ? "taken" : memcached_strerror(NULL, rc));
  }
  struct timespec wait = {0, 100000000};
  memcached_return_t rc;
  memcached_st *late = memcached_pool_fetch(pool, &wait, &rc);
  say("fetch: %d, %s", late != NULL, memcached_strerror(NULL, rc));
  for (int i = 0; i < 5; i++) {
    if (taken[i]) {
      say("push: %d", memcached_pool_push(pool, taken[i]));
    }
  }
  memcached_st *again = memcached_pool_fetch(pool, &wait, &rc);
  say("fetch: %d, %d", again != NULL, rc);
  say("release: %d", memcached_pool_release(pool, again));
}

static void settings(void)
{
  uint64_t value = 0;
  say("set: %d", memcached_pool_behavior_set(pool, MEMCACHED_BEHAVIOR_RETRY_TIMEOUT, 8));
  memcached_return_t rc = memcached_pool_behavior_get(pool, MEMCACHED_BEHAVIOR_RETRY_TIMEOUT, &value);
  say("get: %d, %" PRIu64, rc, value);
  memcached_st *client = memcached_pool_pop(pool, true, &rc);
  say("of a client: %" PRIu64, memcached_behavior_get(client, MEMCACHED_BEHAVIOR_RETRY_TIMEOUT));
  memcached_pool_push(pool, client);
}

static void forked(char **servers)
{
  memcached_st *client = fresh_client_of(servers, false);
  memcached_set(client, S("before"), S("the fork"), 0, 0);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    topic = "child";
    memcached_st *copy = memcached_clone(NULL, client);
    got(copy, "before");
    told(copy, "set", memcached_set(copy, S("after"), S("from the child"), 0, 0));
    memcached_free(copy);
    fflush(stdout);
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  say("the child: %d", status);
  got(client, "after");
  got(client, "before");
  memcached_free(client);
}

int main(int argc, char **argv)
{
  topic = "pool";
  memcached_st *master = fresh_client_of(argv + 1, false);
  pool = memcached_pool_create(master, 1, 4);
  say("made: %d", pool != NULL);
  exhausted();
  settings();
  all_threads();
  say("the master: %d", memcached_pool_destroy(pool) == master);
  memcached_free(master);

  topic = "pool of a string";
  char text[2048] = "--POOL-MIN=2 --POOL-MAX=4";
  for (int i = 1; i < argc; i++) {
    snprintf(text + strlen(text), sizeof text - strlen(text), " --SERVER=%s", argv[i]);
  }
  pool = memcached_pool(text, strlen(text));
  say("made: %d", pool != NULL);
  exhausted();
  all_threads();
  say("the master: %d", memcached_pool_destroy(pool) == NULL);
  say("pool of a bad string: %d", memcached_pool("nothing", 7) != NULL);
  topic = "fork";
  forked(argv + 1);
  return 0;
}
