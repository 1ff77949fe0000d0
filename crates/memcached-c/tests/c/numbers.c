/* Numbers are counted up and down: numbers SERVER... */
#include "transcript.h"

static void counted(memcached_st *client, const char *what, memcached_return_t rc, uint64_t value)
{
  char line[200];
  snprintf(line, sizeof line, "%s: %" PRIu64, what, value);
  told(client, line, rc);
}

int main(int argc, char **argv)
{
  (void) argc;
  for (int binary = 0; binary < 2; binary++) {
    topic = protocols[binary];
    memcached_st *client = fresh_client_of(argv + 1, binary);
    uint64_t value = 7;
#define COUNTED(call) \
  do { \
    value = 7; \
    memcached_return_t rc = call; \
    counted(client, #call, rc, value); \
  } while (0)
    COUNTED(memcached_increment(client, S("none"), 1, &value));
    COUNTED(memcached_decrement(client, S("none"), 1, &value));
    memcached_set(client, S("n"), S("10"), 0, 3);
    COUNTED(memcached_increment(client, S("n"), 5, &value));
    COUNTED(memcached_increment(client, S("n"), 0, &value));
    COUNTED(memcached_decrement(client, S("n"), 4, &value));
    got(client, "n");
    COUNTED(memcached_decrement(client, S("n"), 4000, &value));
    got(client, "n");
    COUNTED(memcached_increment(client, S("n"), 0xffffffff, &value));
    COUNTED(memcached_increment(client, S("n"), 1, NULL));
    got(client, "n");
    memcached_set(client, S("n"), S("18446744073709551615"), 0, 0);
    COUNTED(memcached_increment(client, S("n"), 2, &value));
    memcached_set(client, S("n"), S("no number"), 0, 0);
    COUNTED(memcached_increment(client, S("n"), 1, &value));
    COUNTED(memcached_decrement(client, S("n"), 1, &value));
    memcached_set(client, S("n"), S("1"), 0, 0);
    COUNTED(memcached_increment_by_key(client, S("n"), S("n"), 1, &value));
    COUNTED(memcached_decrement_by_key(client, S("n"), S("n"), 2, &value));
    COUNTED(memcached_increment_with_initial(client, S("i"), 5, 100, 0, &value));
    COUNTED(memcached_increment_with_initial(client, S("i"), 5, 100, 0, &value));
    COUNTED(memcached_decrement_with_initial(client, S("d"), 5, 100, 0, &value));
    COUNTED(memcached_decrement_with_initial(client, S("d"), 5, 100, 0, &value));
    COUNTED(memcached_increment_with_initial(client, S("x"), 5, 100, MEMCACHED_EXPIRATION_NOT_ADD, &value));
    COUNTED(memcached_increment_with_initial_by_key(client, S("g"), S("gi"), 5, 100, 0, &value));
    COUNTED(memcached_decrement_with_initial_by_key(client, S("g"), S("gi"), 5, 100, 0, &value));
    got(client, "i");
    memcached_free(client);
  }
  return 0;
}
