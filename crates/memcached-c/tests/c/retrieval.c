/* Many values are fetched in every way that there is, and touched: retrieval SERVER... */
#include "transcript.h"

#define COUNT 40

static char names[COUNT][16];
static const char *keys[COUNT];
static size_t lengths[COUNT];

static void store(memcached_st *client)
{
  for (int i = 0; i < COUNT; i++) {
    sprintf(names[i], "key%d", i);
    keys[i] = names[i];
    lengths[i] = strlen(names[i]);
    char value[32];
    sprintf(value, "value %d", i);
    // Every fifth is missing.
    if (i % 5) {
      memcached_set(client, keys[i], lengths[i], S(value), 0, (uint32_t) i);
    } else {
      memcached_delete(client, keys[i], lengths[i], 0);
    }
  }
}

static void fetch(memcached_st *client)
{
  told(client, "mget", memcached_mget(client, keys, lengths, COUNT));
  char key[MEMCACHED_MAX_KEY];
  size_t key_length, length;
  uint32_t flags;
  memcached_return_t rc;
  char *value;
  while ((value = memcached_fetch(client, key, &key_length, &length, &flags, &rc)) != NULL) {
    say("fetch %.*s: %s, flags %u, %d", (int) key_length, key, shown(value, length), flags, rc);
    free(value);
  }
  told(client, "the end of fetch", rc);
  value = memcached_fetch(client, key, &key_length, &length, &flags, &rc);
  told(client, "fetch after the end", rc);
  free(value);
}

static void fetch_results(memcached_st *client)
{
  memcached_return_t rc = memcached_mget_by_key(client, S("group"), keys, lengths, COUNT);
  told(client, "mget_by_key", rc);
  memcached_result_st own;
  memcached_result_st *result = memcached_result_create(client, &own);
  while (memcached_fetch_result(client, result, &rc) != NULL) {
    say("result %.*s: %s, flags %u", (int) memcached_result_key_length(result), memcached_result_key_value(result),
        shown(memcached_result_value(result), memcached_result_length(result)), memcached_result_flags(result));
  }
  told(client, "the end of results", rc);
  memcached_result_free(result);
}

static memcached_return_t see(const memcached_st *client, memcached_result_st *result, void *context)
{
  (void) client;
  ++*(int *) context;
  say("seen %.*s: %s", (int) memcached_result_key_length(result), memcached_result_key_value(result),
      shown(memcached_result_value(result), memcached_result_length(result)));
  return MEMCACHED_SUCCESS;
}

static memcached_return_t refuse(const memcached_st *client, memcached_result_st *result, void *context)
{
  (void) client;
  (void) result;
  ++*(int *) context;
  return MEMCACHED_FAILURE;
}

static void fetch_with_callbacks(memcached_st *client)
{
  int count = 0;
  memcached_execute_fn callbacks[] = {see, refuse};
  told(client, "mget", memcached_mget(client, keys, lengths, 10));
  told(client, "fetch_execute", memcached_fetch_execute(client, callbacks, &count, 1));
  say("%d calls", count);
  count = 0;
  told(client, "mget", memcached_mget(client, keys, lengths, 10));
  told(client, "fetch_execute that is refused", memcached_fetch_execute(client, callbacks + 1, &count, 1));
  say("%d calls", count);
  count = 0;
  told(client, "mget_execute", memcached_mget_execute(client, keys, lengths, 10, callbacks, &count, 1));
  told(client, "its fetch_execute", memcached_fetch_execute(client, callbacks, &count, 1));
  told(client, "mget_execute_by_key",
       memcached_mget_execute_by_key(client, S("group"), keys, lengths, 10, callbacks, &count, 1));
  told(client, "its fetch_execute", memcached_fetch_execute(client, callbacks, &count, 1));
  say("%d calls", count);
}

static void unusual(memcached_st *client)
{
  told(client, "mget of nothing", memcached_mget(client, keys, lengths, 0));
  memcached_return_t rc;
  memcached_result_st *result = memcached_fetch_result(client, NULL, &rc);
  told(client, "fetch without an mget", rc);
  say("a result: %s", result ? "yes" : "no");

  // Another request comes before all is fetched.
  told(client, "mget", memcached_mget(client, keys, lengths, COUNT));
  result = memcached_fetch_result(client, NULL, &rc);
  say("one result: %d", result != NULL);
  memcached_result_free(result);
  told(client, "set in between", memcached_set(client, S("between"), S("x"), 0, 0));
  got(client, "between");

  const char *same[] = {"key1", "key1", "key2"};
  size_t same_lengths[] = {4, 4, 4};
  told(client, "mget of the same twice", memcached_mget(client, same, same_lengths, 3));
  int count = 0;
  while ((result = memcached_fetch_result(client, NULL, &rc)) != NULL) {
    count++;
    memcached_result_free(result);
  }
  say("%d results, then %d", count, rc);
  const char *none[] = {"none1", "none2"};
  size_t none_lengths[] = {5, 5};
  told(client, "mget of what is missing", memcached_mget(client, none, none_lengths, 2));
  result = memcached_fetch_result(client, NULL, &rc);
  told(client, "fetch", rc);
  say("a result: %s", result ? "yes" : "no");
}

/* All items were fetched, but not the end; then nothing is asked for. */
static void nothing_after_all(memcached_st *client)
{
  for (size_t count = 0; count < 3; count++) {
    const char *present[] = {"key1", "key2"};
    size_t present_lengths[] = {4, 4};
    char key[MEMCACHED_MAX_KEY];
    size_t key_length, length;
    uint32_t flags;
    memcached_return_t rc;
    told(client, "mget", memcached_mget(client, present, present_lengths, 2));
    for (size_t i = 0; i < count; i++) {
      free(memcached_fetch(client, key, &key_length, &length, &flags, &rc));
      told(client, "fetch", rc);
    }
    told(client, "mget of nothing", memcached_mget(client, present, present_lengths, 0));
    do {
      free(memcached_fetch(client, key, &key_length, &length, &flags, &rc));
      told(client, "fetch after it", rc);
    } while (rc == MEMCACHED_SUCCESS);
  }
}

static void own_results(memcached_st *client)
{
  memcached_result_st *result = memcached_result_create(client, NULL);
  say("new: %zu, %zu, %u, %" PRIu64, memcached_result_key_length(result), memcached_result_length(result),
      memcached_result_flags(result), memcached_result_cas(result));
  say("set_value: %d", memcached_result_set_value(result, S("hello")));
  memcached_result_set_flags(result, 17);
  memcached_result_set_expiration(result, 99);
  say("%s, flags %u", shown(memcached_result_value(result), memcached_result_length(result)),
      memcached_result_flags(result));
  char *taken = memcached_result_take_value(result);
  say("taken %s, left %zu", shown(taken, 5), memcached_result_length(result));
  free(taken);
  memcached_result_reset(result);
  say("reset: %zu, flags %u", memcached_result_length(result), memcached_result_flags(result));
  memcached_result_free(result);
}

static void touch(memcached_st *client)
{
  told(client, "exist", memcached_exist(client, S("key1")));
  told(client, "exist of what is missing", memcached_exist(client, S("key0")));
  told(client, "touch", memcached_touch(client, S("key1"), 100));
  told(client, "touch of what is missing", memcached_touch(client, S("key0"), 100));
  told(client, "touch_by_key", memcached_touch_by_key(client, S("key1"), S("key1"), 100));
  got(client, "key1");
  told(client, "exist_by_key", memcached_exist_by_key(client, S("key1"), S("key1")));
}

int main(int argc, char **argv)
{
  (void) argc;
  for (int binary = 0; binary < 2; binary++) {
    topic = protocols[binary];
    // Of several servers the order is chance.
    char *one[] = {argv[1], NULL};
    memcached_st *client = fresh_client_of(one, binary);
    store(client);
    fetch(client);
    fetch_results(client);
    fetch_with_callbacks(client);
    unusual(client);
    nothing_after_all(client);
    own_results(client);
    touch(client);
    memcached_free(client);
  }
  return 0;
}
