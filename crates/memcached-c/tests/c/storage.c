/* Values are stored under every verb, with and without a key for their group: storage SERVER... */
#include "transcript.h"

static void verbs(memcached_st *client)
{
  told(client, "replace of what is missing", memcached_replace(client, S("a"), S("x"), 0, 1));
  told(client, "append to what is missing", memcached_append(client, S("a"), S("x"), 0, 1));
  told(client, "prepend to what is missing", memcached_prepend(client, S("a"), S("x"), 0, 1));
  told(client, "delete of what is missing", memcached_delete(client, S("a"), 0));
  told(client, "add", memcached_add(client, S("a"), S("added"), 0, 2));
  told(client, "add of what is there", memcached_add(client, S("a"), S("again"), 0, 3));
  got(client, "a");
  told(client, "set", memcached_set(client, S("a"), S("set"), 0, 0xffffffff));
  got(client, "a");
  told(client, "replace", memcached_replace(client, S("a"), S("replaced"), 0, 4));
  told(client, "append", memcached_append(client, S("a"), S(">"), 0, 5));
  told(client, "prepend", memcached_prepend(client, S("a"), S("<"), 0, 6));
  got(client, "a");
  told(client, "delete", memcached_delete(client, S("a"), 0));
  got(client, "a");
}

static void verbs_by_key(memcached_st *client)
{
  told(client, "set_by_key", memcached_set_by_key(client, S("group"), S("g"), S("set"), 0, 7));
  told(client, "add_by_key", memcached_add_by_key(client, S("group"), S("g"), S("added"), 0, 7));
  told(client, "replace_by_key", memcached_replace_by_key(client, S("group"), S("g"), S("replaced"), 0, 8));
  told(client, "append_by_key", memcached_append_by_key(client, S("group"), S("g"), S(">"), 0, 0));
  told(client, "prepend_by_key", memcached_prepend_by_key(client, S("group"), S("g"), S("<"), 0, 0));
  size_t length;
  uint32_t flags;
  memcached_return_t rc;
  char *value = memcached_get_by_key(client, S("group"), S("g"), &length, &flags, &rc);
  told(client, shown(value, length), rc);
  say("flags %u", flags);
  free(value);
  told(client, "exist_by_key", memcached_exist_by_key(client, S("group"), S("g")));
  told(client, "delete_by_key", memcached_delete_by_key(client, S("group"), S("g"), 0));
  told(client, "delete_by_key again", memcached_delete_by_key(client, S("group"), S("g"), 0));
  value = memcached_get_by_key(client, S("group"), S("g"), &length, &flags, &rc);
  told(client, shown(value, length), rc);
}

static void compare_and_set(memcached_st *client)
{
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_SUPPORT_CAS, 1);
  told(client, "cas of what is missing", memcached_cas(client, S("c"), S("x"), 0, 0, 1));
  memcached_set(client, S("c"), S("first"), 0, 9);
  uint64_t first = version_of(client, "c");
  say("a version: %s", first ? "yes" : "no");
  told(client, "cas", memcached_cas(client, S("c"), S("second"), 0, 10, first));
  told(client, "cas of what has changed", memcached_cas(client, S("c"), S("third"), 0, 11, first));
  got(client, "c");
  char *large = calloc(1, 2 << 20);
  told(client, "cas of a large value", memcached_cas(client, S("c"), large, 2 << 20, 0, 0, first));
  free(large);
  got(client, "c");
  uint64_t second = version_of(client, "c");
  say("another version: %s", second != first ? "yes" : "no");
  told(client, "cas_by_key", memcached_cas_by_key(client, S("c"), S("c"), S("fourth"), 0, 12, second));
  got(client, "c");
  if (memcached_behavior_get(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL)) {
    // In the text protocol libmemcached sends no version at all, and loses its place among the answers.
    told(client, "cas with no version", memcached_cas(client, S("c"), S("fifth"), 0, 13, 0));
    got(client, "c");
  }
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_SUPPORT_CAS, 0);
  say("a version without asking: %s", version_of(client, "c") ? "yes" : "no");
}

static void edges(memcached_st *client)
{
  told(client, "set of nothing", memcached_set(client, S("empty"), "", 0, 0, 14));
  got(client, "empty");
  told(client, "set of a null", memcached_set(client, S("empty"), NULL, 0, 0, 15));
  got(client, "empty");
  told(client, "set of every byte", memcached_set(client, S("bytes"), "a\0b\r\nEND\r\n\xff", 11, 0, 16));
  got(client, "bytes");
  told(client, "append to nothing", memcached_append(client, S("empty"), S("now not"), 0, 0));
  got(client, "empty");
  told(client, "delete with a time", memcached_delete(client, S("empty"), 10));
  got(client, "empty");
  told(client, "flush", memcached_flush(client, 0));
  got(client, "bytes");
}

int main(int argc, char **argv)
{
  (void) argc;
  for (int binary = 0; binary < 2; binary++) {
    for (int all = 0; all < 2; all++) {
      topic = protocols[binary];
      char *one[] = {argv[1], NULL};
      memcached_st *client = fresh_client_of(all ? argv + 1 : one, binary);
      verbs(client);
      verbs_by_key(client);
      compare_and_set(client);
      edges(client);
      memcached_free(client);
    }
  }
  return 0;
}
