/* Handles are made, copied, set and freed: handles SERVER... */
#include "transcript.h"

static void texts(void)
{
  for (int code = 0; code <= MEMCACHED_MAXIMUM_RETURN; code++) {
    memcached_return_t rc = (memcached_return_t) code;
    say("%d: %s, %d%d%d", code, memcached_strerror(NULL, rc), memcached_success(rc), memcached_failed(rc),
        memcached_fatal(rc));
  }
  for (int flag = 0; flag < MEMCACHED_BEHAVIOR_MAX; flag++) {
    say("behavior %d: %s", flag, libmemcached_string_behavior((memcached_behavior_t) flag));
  }
  for (int way = 0; way < MEMCACHED_DISTRIBUTION_CONSISTENT_MAX; way++) {
    say("distribution %d: %s", way, libmemcached_string_distribution((memcached_server_distribution_t) way));
  }
  for (int hash = 0; hash < MEMCACHED_HASH_CUSTOM; hash++) {
    say("hash %d: %s", hash, libmemcached_string_hash((memcached_hash_t) hash));
  }
}

static bool is_of_the_system(int flag)
{
  // Sizes of sockets are what the kernel makes of them; a file has its own test.
  return flag == MEMCACHED_BEHAVIOR_SOCKET_SEND_SIZE || flag == MEMCACHED_BEHAVIOR_SOCKET_RECV_SIZE
    || flag == MEMCACHED_BEHAVIOR_LOAD_FROM_FILE;
}

static void behaviors(bool has_servers, char **servers)
{
  static const uint64_t values[] = {0, 1, 2, 5, 300};
  for (int flag = 0; flag < MEMCACHED_BEHAVIOR_MAX; flag++) {
    if (is_of_the_system(flag)) {
      continue;
    }
    memcached_st *client = memcached_create(NULL);
    if (has_servers) {
      add_server(client, servers[0]);
    }
    memcached_behavior_t behavior = (memcached_behavior_t) flag;
    say("%s is %" PRIu64, libmemcached_string_behavior(behavior), memcached_behavior_get(client, behavior));
    bool is_hash = behavior == MEMCACHED_BEHAVIOR_HASH || behavior == MEMCACHED_BEHAVIOR_KETAMA_HASH;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
      if (is_hash && values[i] > MEMCACHED_HASH_MAX) {
        continue;
      }
      char what[80];
      sprintf(what, "to %" PRIu64, values[i]);
      told(client, what, memcached_behavior_set(client, behavior, values[i]));
      say("it is %" PRIu64, memcached_behavior_get(client, behavior));
    }
    memcached_free(client);
  }
}

static void copies(char **servers)
{
  memcached_st stack;
  memcached_st *client = memcached_create(&stack);
  say("on the stack: %d", client == &stack);
  for (char **server = servers; *server; server++) {
    add_server(client, *server);
  }
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, 1);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_RETRY_TIMEOUT, 9);
  memcached_callback_set(client, MEMCACHED_CALLBACK_PREFIX_KEY, "p:");
  int data = 5;
  say("user data: %d", memcached_set_user_data(client, &data) == NULL);
  say("user data: %d", memcached_get_user_data(client) == &data);
  memcached_set(client, S("copied"), S("value"), 0, 3);
  memcached_st *copy = memcached_clone(NULL, client);
  say("servers %u, binary %d, retry %d, data %d", memcached_server_count(copy),
      (int) memcached_behavior_get(copy, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL),
      (int) memcached_behavior_get(copy, MEMCACHED_BEHAVIOR_RETRY_TIMEOUT), memcached_get_user_data(copy) == &data);
  got(copy, "copied");
  memcached_st second;
  memset(&second, 0, sizeof second);
  say("clone on the stack: %d", memcached_clone(&second, copy) == &second);
  got(&second, "copied");
  memcached_st *empty = memcached_clone(NULL, NULL);
  say("clone of nothing: %d, %u", empty != NULL, memcached_server_count(empty));
  say("push: %d", memcached_push(empty, client));
  say("servers %u", memcached_server_count(empty));
  memcached_free(empty);
  memcached_free(&second);
  memcached_free(copy);
  say("reset: %d", memcached_reset(client));
  say("servers %u", memcached_server_count(client));
  told(client, "set without servers", memcached_set(client, S("a"), S("x"), 0, 0));
  got(client, "a");
  memcached_return_t rc;
  memcached_stat_st *stats = memcached_stat(client, NULL, &rc);
  told(client, "stat without servers", rc);
  memcached_stat_free(client, stats);
  told(client, "flush without servers", memcached_flush(client, 0));
  told(client, "version without servers", memcached_version(client));
  memcached_free(client);
}

static void lists(void)
{
  static const char *const texts[] = {
    "localhost", "localhost:11221,localhost:11222:5,other", " a:1 ", "a:1,,b:2", "", "/tmp/socket,a:3", "a:99999",
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    memcached_server_list_st list = memcached_servers_parse(texts[i]);
    say("%s: %u servers", shown(texts[i], strlen(texts[i])), memcached_server_list_count(list));
    memcached_st *client = memcached_create(NULL);
    say("push: %d", memcached_server_push(client, list));
    for (uint32_t at = 0; at < memcached_server_count(client); at++) {
      const memcached_instance_st *server = memcached_server_instance_by_position(client, at);
      say("%s:%d %s", memcached_server_name(server), memcached_server_port(server), memcached_server_type(server));
    }
    memcached_free(client);
    memcached_server_list_free(list);
  }
  memcached_return_t rc;
  memcached_server_list_st list = memcached_server_list_append(NULL, "one", 0, &rc);
  say("append: %d, %u", rc, memcached_server_list_count(list));
  list = memcached_server_list_append_with_weight(list, "two", 1234, 7, &rc);
  say("append: %d, %u", rc, memcached_server_list_count(list));
  memcached_st *client = memcached_create(NULL);
  memcached_server_push(client, list);
  memcached_server_push(client, list);
  memcached_server_add(client, NULL, 0);
  memcached_server_add(client, "/tmp/a", 0);
  memcached_server_add_unix_socket(client, "/tmp/another");
  for (uint32_t at = 0; at < memcached_server_count(client); at++) {
    const memcached_instance_st *server = memcached_server_instance_by_position(client, at);
    say("%s:%d %s", memcached_server_name(server), memcached_server_port(server), memcached_server_type(server));
  }
  memcached_server_list_free(list);
  memcached_free(client);
}

static int clones, cleanups, allocations, frees;

static memcached_return_t on_clone(memcached_st *parent, const memcached_st *clone)
{
  (void) parent;
  (void) clone;
  clones++;
  return MEMCACHED_SUCCESS;
}

static memcached_return_t on_cleanup(const memcached_st *client)
{
  (void) client;
  cleanups++;
  return MEMCACHED_SUCCESS;
}

static memcached_return_t on_miss(const memcached_st *client, const char *key, size_t length,
                                  memcached_result_st *result)
{
  (void) client;
  say("a miss of %.*s", (int) length, key);
  memcached_result_set_flags(result, 5);
  return memcached_result_set_value(result, S("made up"));
}

static memcached_return_t refuse_miss(const memcached_st *client, const char *key, size_t length,
                                      memcached_result_st *result)
{
  (void) client;
  (void) key;
  (void) length;
  (void) result;
  return MEMCACHED_BUFFERED;
}

static memcached_return_t on_delete(const memcached_st *client, const char *key, size_t length)
{
  (void) client;
  say("a delete of %.*s", (int) length, key);
  return MEMCACHED_SUCCESS;
}

static void callbacks(char **servers, bool binary)
{
  memcached_st *client = fresh_client_of(servers, binary);
  int data = 3;
  say("set: %d %d %d %d %d", memcached_callback_set(client, MEMCACHED_CALLBACK_USER_DATA, &data),
      memcached_callback_set(client, MEMCACHED_CALLBACK_CLONE_FUNCTION, *(void **) &(memcached_clone_fn){on_clone}),
      memcached_callback_set(client, MEMCACHED_CALLBACK_CLEANUP_FUNCTION,
                             *(void **) &(memcached_cleanup_fn){on_cleanup}),
      memcached_callback_set(client, MEMCACHED_CALLBACK_GET_FAILURE, *(void **) &(memcached_trigger_key_fn){on_miss}),
      // In the binary protocol libmemcached forgets about it.
      memcached_callback_set(client, MEMCACHED_CALLBACK_DELETE_TRIGGER,
                             binary ? NULL : *(void **) &(memcached_trigger_delete_key_fn){on_delete}));
  memcached_return_t rc;
  say("user data: %d", memcached_callback_get(client, MEMCACHED_CALLBACK_USER_DATA, &rc) == &data);
  say("rc %d", rc);
  say("of no callback: %d", memcached_callback_set(client, MEMCACHED_CALLBACK_MAX, NULL));
  got(client, "missed");
  got(client, "missed");
  told(client, "delete", memcached_delete(client, S("missed"), 0));
  memcached_callback_set(client, MEMCACHED_CALLBACK_GET_FAILURE, *(void **) &(memcached_trigger_key_fn){refuse_miss});
  size_t length;
  uint32_t flags;
  char *value = memcached_get(client, S("missed"), &length, &flags, &rc);
  say("refused: %d", value == NULL);
  free(value);
  memcached_st *copy = memcached_clone(NULL, client);
  memcached_free(copy);
  memcached_free(client);
  say("clones %d, cleanups %d", clones, cleanups);
}

static void *own_malloc(const memcached_st *client, const size_t size, void *context)
{
  (void) client;
  allocations++;
  ++*(int *) context;
  return malloc(size);
}

static void own_free(const memcached_st *client, void *memory, void *context)
{
  (void) client;
  (void) context;
  frees += memory != NULL;
  free(memory);
}

static void *own_realloc(const memcached_st *client, void *memory, const size_t size, void *context)
{
  (void) client;
  (void) context;
  allocations += memory == NULL;
  return realloc(memory, size);
}

static void *own_calloc(const memcached_st *client, size_t count, const size_t size, void *context)
{
  (void) client;
  (void) context;
  allocations++;
  return calloc(count, size);
}

static void allocators(char **servers)
{
  int context = 0;
  memcached_st *client = memcached_create(NULL);
  say("only one: %d", memcached_set_memory_allocators(client, own_malloc, NULL, NULL, NULL, NULL));
  say("all: %d",
      memcached_set_memory_allocators(client, own_malloc, own_free, own_realloc, own_calloc, &context));
  memcached_malloc_fn malloc_fn;
  memcached_free_fn free_fn;
  memcached_realloc_fn realloc_fn;
  memcached_calloc_fn calloc_fn;
  memcached_get_memory_allocators(client, &malloc_fn, &free_fn, &realloc_fn, &calloc_fn);
  say("they are ours: %d %d", malloc_fn == own_malloc && free_fn == own_free && realloc_fn == own_realloc
      && calloc_fn == own_calloc, memcached_get_memory_allocators_context(client) == &context);
  add_server(client, servers[0]);
  memcached_set(client, S("a"), S("x"), 0, 0);
  got(client, "a");
  say("asked: %d", allocations > 0);
  memcached_free(client);
}

int main(int argc, char **argv)
{
  (void) argc;
  topic = "handles";
  texts();
  behaviors(false, argv + 1);
  behaviors(true, argv + 1);
  copies(argv + 1);
  lists();
  for (int binary = 0; binary < 2; binary++) {
    topic = protocols[binary];
    callbacks(argv + 1, binary);
  }
  allocators(argv + 1);
  return 0;
}
