/* Keys that are long, bad or have a prefix: keys SERVER... */
#include "transcript.h"

static void lengths(memcached_st *client)
{
  char key[301];
  memset(key, 'k', 300);
  for (size_t length = 248; length <= 252; length++) {
    char what[40];
    sprintf(what, "set of %zu", length);
    told(client, what, memcached_set(client, key, length, S("x"), 0, 0));
    size_t got_length;
    uint32_t flags;
    memcached_return_t rc;
    char *value = memcached_get(client, key, length, &got_length, &flags, &rc);
    told(client, shown(value, got_length), rc);
    free(value);
    told(client, "delete", memcached_delete(client, key, length, 0));
    told(client, "increment", memcached_increment(client, key, length, 1, NULL));
    say("touch: %d", memcached_touch(client, key, length, 1));
    const char *keys[] = {key};
    told(client, "mget", memcached_mget(client, keys, &length, 1));
    memcached_quit(client);
  }
  told(client, "set of none", memcached_set(client, "", 0, S("x"), 0, 0));
  got(client, "");
  told(client, "delete of none", memcached_delete(client, "", 0, 0));
}

static void verified(memcached_st *client)
{
  say("verify: %d", memcached_behavior_set(client, MEMCACHED_BEHAVIOR_VERIFY_KEY, 1));
  say("it is %" PRIu64, memcached_behavior_get(client, MEMCACHED_BEHAVIOR_VERIFY_KEY));
  static const char *const keys[] = {"good", "a space", "a\nline", "a\ttab", "k\xc3\xa4se", "a\x01" "control", "a\x7f"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    told(client, shown(keys[i], strlen(keys[i])), memcached_set(client, S(keys[i]), S("x"), 0, 0));
    got(client, keys[i]);
    told(client, "delete", memcached_delete(client, S(keys[i]), 0));
  }
  const char *some[] = {"good", "a space"};
  size_t some_lengths[] = {4, 7};
  told(client, "mget with a bad one", memcached_mget(client, some, some_lengths, 2));
  memcached_quit(client);
  told(client, "set by a bad group", memcached_set_by_key(client, S("a space"), S("good"), S("x"), 0, 0));
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_VERIFY_KEY, 0);
}

static void prefixes(memcached_st *client, memcached_st *plain)
{
  memcached_return_t rc = MEMCACHED_MAXIMUM_RETURN;
  void *prefix = memcached_callback_get(client, MEMCACHED_CALLBACK_PREFIX_KEY, &rc);
  say("prefix at first: %s, %d", prefix ? (char *) prefix : "none", rc);
  told(client, "prefix", memcached_callback_set(client, MEMCACHED_CALLBACK_PREFIX_KEY, "app:"));
  prefix = memcached_callback_get(client, MEMCACHED_CALLBACK_NAMESPACE, &rc);
  say("prefix: %s, %d", prefix ? (char *) prefix : "none", rc);
  told(client, "set", memcached_set(client, S("a"), S("prefixed"), 0, 1));
  told(client, "set", memcached_set(client, S("n"), S("5"), 0, 1));
  got(client, "a");
  got(plain, "app:a");
  got(plain, "a");
  uint64_t number = 0;
  told(client, "increment", memcached_increment(client, S("n"), 2, &number));
  told(client, "touch", memcached_touch(client, S("n"), 100));
  told(client, "exist", memcached_exist(client, S("n")));
  got(plain, "app:n");
  const char *keys[] = {"a", "n", "none"};
  size_t key_lengths[] = {1, 1, 4};
  memcached_mget(client, keys, key_lengths, 3);
  memcached_result_st *result;
  while ((result = memcached_fetch_result(client, NULL, &rc)) != NULL) {
    say("its key is %.*s", (int) memcached_result_key_length(result), memcached_result_key_value(result));
    memcached_result_free(result);
  }
  told(client, "delete", memcached_delete(client, S("a"), 0));
  got(plain, "app:a");

  char key[252];
  memset(key, 'k', 251);
  for (size_t length = 244; length <= 246; length++) {
    char what[40];
    sprintf(what, "set of %zu", length);
    told(client, what, memcached_set(client, key, length, S("x"), 0, 0));
  }
  // With the prefix it is too long: libmemcached sends it, and has the server say so.
  say("set of 247 fails: %d", memcached_failed(memcached_set(client, key, 247, S("x"), 0, 0)));
  memcached_quit(client);
  memset(key, 'p', 251);
  for (int length = 251; length >= 127; length -= length > 130 ? 60 : 1) {
    key[length] = 0;
    char what[40];
    sprintf(what, "prefix of %d", length);
    told(client, what, memcached_callback_set(client, MEMCACHED_CALLBACK_PREFIX_KEY, key));
  }
  told(client, "prefix with a space", memcached_callback_set(client, MEMCACHED_CALLBACK_PREFIX_KEY, "a b"));
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_VERIFY_KEY, 1);
  told(client, "the same, verified", memcached_callback_set(client, MEMCACHED_CALLBACK_PREFIX_KEY, "a b"));
  told(client, "no prefix", memcached_callback_set(client, MEMCACHED_CALLBACK_PREFIX_KEY, NULL));
  told(client, "empty prefix", memcached_callback_set(client, MEMCACHED_CALLBACK_PREFIX_KEY, ""));
  got(client, "a");
}

int main(int argc, char **argv)
{
  (void) argc;
  for (int binary = 0; binary < 2; binary++) {
    topic = protocols[binary];
    // With one server the order of what is fetched is certain.
    char *one[] = {argv[1], NULL};
    memcached_st *client = fresh_client_of(one, binary);
    memcached_st *plain = client_of(one, binary);
    lengths(client);
    if (binary) {
      say("verify: %d", memcached_behavior_set(client, MEMCACHED_BEHAVIOR_VERIFY_KEY, 1));
    } else {
      verified(client);
    }
    prefixes(client, plain);
    memcached_free(client);
    memcached_free(plain);
  }
  return 0;
}
