// Exceptions that leave a program's own functions, and threads that end in the middle of a call: the client can be used
// afterwards. It knows what is right.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <libmemcached/memcached.h>
#include <pthread.h>
#include <unistd.h>

static int failures;
static void expect(bool is_right, const char *what)
{
  if (!is_right) {
    printf("wrong: %s\n", what);
    failures++;
  }
}

static int calls;

static memcached_return_t throw_at_item(const memcached_st *, memcached_result_st *, void *) { calls++; throw 1; }
static memcached_return_t throw_at_server(const memcached_st *, const memcached_instance_st *, void *)
{
  calls++;
  throw 2;
}
static memcached_return_t throw_at_statistic(const memcached_instance_st *, const char *, size_t, const char *, size_t,
                                             void *)
{
  calls++;
  throw 3;
}
static memcached_return_t throw_at_key(const memcached_st *, const char *, size_t, void *) { calls++; throw 4; }
static memcached_return_t throw_at_miss(const memcached_st *, const char *, size_t, memcached_result_st *)
{
  calls++;
  throw 5;
}
static memcached_return_t throw_at_delete(const memcached_st *, const char *, size_t) { calls++; throw 6; }
static memcached_return_t throw_at_clone(memcached_st *, const memcached_st *) { calls++; throw 7; }
static memcached_return_t throw_at_free(const memcached_st *) { calls++; throw 8; }
static memcached_return_t end_thread(const memcached_st *, memcached_result_st *, void *)
{
  calls++;
  pthread_exit((void *) 9);
}

template <typename Call> static int thrown(Call call)
{
  try {
    call();
  } catch (int number) {
    return number;
  }
  return 0;
}

static void works(memcached_st *client, const char *after)
{
  char name[100];
  size_t length = 0;
  uint32_t flags = 0;
  memcached_return_t rc = memcached_set(client, "works", 5, after, strlen(after), 0, 3);
  char *value = memcached_get(client, "works", 5, &length, &flags, &rc);
  snprintf(name, sizeof name, "the client works after %s", after);
  expect(value && length == strlen(after) && memcmp(value, after, length) == 0 && flags == 3, name);
  free(value);
}

static void ask_for_many(memcached_st *client)
{
  const char *keys[] = {"a", "b", "works"};
  size_t lengths[] = {1, 1, 5};
  memcached_set(client, "a", 1, "1", 1, 0, 0);
  memcached_set(client, "b", 1, "2", 1, 0, 0);
  expect(memcached_mget(client, keys, lengths, 3) == MEMCACHED_SUCCESS, "many are asked for");
}

static void *fetch_in_thread(void *context)
{
  memcached_execute_fn functions[] = {end_thread};
  memcached_fetch_execute(static_cast<memcached_st *>(context), functions, NULL, 1);
  return NULL;
}

static pthread_barrier_t barrier;

// Asks again and again, until it is cancelled.
static void *get_in_thread(void *context)
{
  memcached_st *client = static_cast<memcached_st *>(context);
  pthread_barrier_wait(&barrier);
  for (;;) {
    size_t length;
    uint32_t flags;
    memcached_return_t rc;
    free(memcached_get(client, "works", 5, &length, &flags, &rc));
    pthread_testcancel();
  }
  return NULL;
}

static void exceptions(memcached_st *client)
{
  memcached_execute_fn items[] = {throw_at_item};
  ask_for_many(client);
  expect(thrown([&] { memcached_fetch_execute(client, items, NULL, 1); }) == 1, "of an item");
  works(client, "an item");

  memcached_server_fn servers[] = {throw_at_server};
  expect(thrown([&] { memcached_server_cursor(client, servers, NULL, 1); }) == 2, "of a server");
  works(client, "a server");

  expect(thrown([&] { memcached_stat_execute(client, NULL, throw_at_statistic, NULL); }) == 3, "of a statistic");
  works(client, "a statistic");

  memcached_callback_set(client, MEMCACHED_CALLBACK_GET_FAILURE, (void *) throw_at_miss);
  size_t length;
  uint32_t flags;
  memcached_return_t rc;
  expect(thrown([&] { free(memcached_get(client, "none", 4, &length, &flags, &rc)); }) == 5, "of a miss");
  memcached_callback_set(client, MEMCACHED_CALLBACK_GET_FAILURE, NULL);
  works(client, "a miss");

  memcached_callback_set(client, MEMCACHED_CALLBACK_DELETE_TRIGGER, (void *) throw_at_delete);
  expect(thrown([&] { memcached_delete(client, "works", 5, 0); }) == 6, "of a deletion");
  memcached_callback_set(client, MEMCACHED_CALLBACK_DELETE_TRIGGER, NULL);
  works(client, "a deletion");

  memcached_callback_set(client, MEMCACHED_CALLBACK_CLONE_FUNCTION, (void *) throw_at_clone);
  memcached_st clone;
  expect(thrown([&] { memcached_clone(&clone, client); }) == 7, "of a copy");
  memcached_callback_set(client, MEMCACHED_CALLBACK_CLONE_FUNCTION, NULL);
  works(client, "a copy");
  memcached_callback_set(&clone, MEMCACHED_CALLBACK_CLEANUP_FUNCTION, (void *) throw_at_free);
  expect(thrown([&] { memcached_reset(&clone); }) == 8, "of a new beginning");
  expect(thrown([&] { memcached_free(&clone); }) == 8, "of an end");
  memcached_callback_set(&clone, MEMCACHED_CALLBACK_CLEANUP_FUNCTION, NULL);
  memcached_free(&clone);
}

int main(int argc, char **argv)
{
  if (argc != 2) {
    return 2;
  }
  const char *colon = strrchr(argv[1], ':');
  char host[100];
  snprintf(host, sizeof host, "%.*s", (int) (colon - argv[1]), argv[1]);
  for (int binary = 0; binary < 2; binary++) {
    memcached_st *client = memcached_create(NULL);
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, binary);
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, 60000);
    memcached_server_add(client, host, (in_port_t) atoi(colon + 1));
    works(client, "nothing");
    exceptions(client);
    if (!binary) {
      memcached_dump_fn keys[] = {throw_at_key};
      // memcached may show none of so few.
      int number = thrown([&] { memcached_dump(client, keys, NULL, 1); });
      expect(number == 4 || number == 0, "of a dumped key");
      calls -= number == 4;
      works(client, "a dumped key");
    }

    pthread_t thread;
    void *result = NULL;
    ask_for_many(client);
    pthread_create(&thread, NULL, fetch_in_thread, client);
    pthread_join(thread, &result);
    expect(result == (void *) 9, "a thread ends in a function");
    works(client, "a thread that ended");

    pthread_barrier_init(&barrier, NULL, 2);
    for (int i = 0; i < 20; i++) {
      pthread_create(&thread, NULL, get_in_thread, client);
      pthread_barrier_wait(&barrier);
      usleep(100 * i);
      pthread_cancel(thread);
      pthread_join(thread, &result);
      expect(result == PTHREAD_CANCELED, "a thread is cancelled");
      works(client, "a thread that was cancelled");
    }
    memcached_free(client);
  }
  expect(calls == 2 * 9, "every function was called");
  if (failures == 0) {
    printf("clients work after exceptions and ends of threads\n");
  }
  return failures > 0;
}
