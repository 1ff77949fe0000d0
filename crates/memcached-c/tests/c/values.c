/* Values that are large, too large, or have had their time: values SERVER... */
#include "transcript.h"
#include <time.h>
#include <unistd.h>

static void sizes(memcached_st *client)
{
  static const size_t sizes[] = {1, 8191, 8192, 8193, 65536, 1000000, 1048576 + 1, 3000000};
  char *bytes = malloc(3000000);
  for (size_t i = 0; i < 3000000; i++) {
    bytes[i] = (char) (i * 7 + i / 251);
  }
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char key[20];
    sprintf(key, "size%zu", sizes[i]);
    told(client, key, memcached_set(client, S(key), bytes, sizes[i], 0, (uint32_t) i));
    got(client, key);
  }
  told(client, "append", memcached_append(client, S("size65536"), bytes, 65536, 0, 0));
  got(client, "size65536");
  free(bytes);
}

static void large_ones_at_once(memcached_st *client)
{
  char *bytes = malloc(500000);
  memset(bytes, 'v', 500000);
  const char *keys[20];
  size_t lengths[20];
  char names[20][8];
  for (int i = 0; i < 20; i++) {
    sprintf(names[i], "big%d", i);
    keys[i] = names[i];
    lengths[i] = strlen(keys[i]);
    bytes[i] = (char) i;
    memcached_set(client, keys[i], lengths[i], bytes, 500000, 0, 0);
  }
  told(client, "mget", memcached_mget(client, keys, lengths, 20));
  memcached_return_t rc;
  memcached_result_st *result;
  int count = 0;
  while ((result = memcached_fetch_result(client, NULL, &rc)) != NULL) {
    count += memcached_result_length(result) == 500000;
    memcached_result_free(result);
  }
  say("%d whole, %d", count, rc);
  free(bytes);
}

static void times(memcached_st *client)
{
  time_t now = time(NULL);
  memcached_set(client, S("soon"), S("x"), 1, 0);
  memcached_set(client, S("at"), S("x"), now + 1, 0);
  memcached_set(client, S("later"), S("x"), 1000, 0);
  memcached_set(client, S("date"), S("x"), now + 1000, 0);
  memcached_set(client, S("touched"), S("x"), 2, 0);
  told(client, "past", memcached_set(client, S("past"), S("x"), now - 1000, 0));
  told(client, "touch", memcached_touch(client, S("touched"), 1000));
  got(client, "past");
  sleep(3);
  static const char *const keys[] = {"soon", "at", "later", "date", "touched"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    got(client, keys[i]);
  }
  told(client, "touch into the past", memcached_touch(client, S("later"), now - 1000));
  got(client, "later");
  told(client, "flush after a while", memcached_flush(client, 1));
  sleep(3);
  got(client, "date");
}

int main(int argc, char **argv)
{
  (void) argc;
  for (int binary = 0; binary < 2; binary++) {
    topic = protocols[binary];
    memcached_st *client = fresh_client_of(argv + 1, binary);
    sizes(client);
    large_ones_at_once(client);
    times(client);
    memcached_free(client);
  }
  return 0;
}
