/* Requests wait for others, or for no answer: buffering SERVER... */
#include "transcript.h"

static void set_many(memcached_st *client, const char *what, int count)
{
  int codes[MEMCACHED_MAXIMUM_RETURN] = {0};
  for (int i = 0; i < count; i++) {
    char key[20];
    int length = sprintf(key, "many%d", i);
    codes[memcached_set(client, key, (size_t) length, S(what), 0, (uint32_t) i)]++;
  }
  for (int code = 0; code < MEMCACHED_MAXIMUM_RETURN; code++) {
    if (codes[code]) {
      say("%s: %d times %s", what, codes[code], memcached_strerror(client, (memcached_return_t) code));
    }
  }
}

static void buffered(memcached_st *client)
{
  say("buffer: %d", memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, 1));
  say("it is %" PRIu64, memcached_behavior_get(client, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS));
  told(client, "set", memcached_set(client, S("a"), S("buffered"), 0, 1));
  told(client, "append", memcached_append(client, S("a"), S(">"), 0, 1));
  told(client, "delete", memcached_delete(client, S("b"), 0));
  told(client, "flush_buffers", memcached_flush_buffers(client));
  got(client, "a");
  set_many(client, "buffered", 1000);
  got(client, "many999");
  got(client, "many0");
  told(client, "delete", memcached_delete(client, S("many0"), 0));
  told(client, "flush_buffers", memcached_flush_buffers(client));
  say("no more: %d", memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, 0));
}

static void without_answers(memcached_st *client)
{
  say("noreply: %d", memcached_behavior_set(client, MEMCACHED_BEHAVIOR_NOREPLY, 1));
  say("it is %" PRIu64, memcached_behavior_get(client, MEMCACHED_BEHAVIOR_NOREPLY));
  told(client, "set", memcached_set(client, S("a"), S("no reply"), 0, 1));
  told(client, "add of what is there", memcached_add(client, S("a"), S("x"), 0, 1));
  told(client, "replace of what is missing", memcached_replace(client, S("none"), S("x"), 0, 1));
  told(client, "append", memcached_append(client, S("a"), S(">"), 0, 1));
  told(client, "prepend", memcached_prepend(client, S("a"), S("<"), 0, 1));
  got(client, "a");
  told(client, "set", memcached_set(client, S("n"), S("1"), 0, 1));
  uint64_t number = 77;
  memcached_return_t rc = memcached_increment(client, S("n"), 1, &number);
  told(client, "increment", rc);
  got(client, "n");
  told(client, "delete", memcached_delete(client, S("n"), 0));
  got(client, "n");
  set_many(client, "no reply", 1000);
  got(client, "many999");
  told(client, "flush", memcached_flush(client, 0));
  got(client, "many998");
  say("both: %d", memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, 1));
  set_many(client, "both", 1000);
  told(client, "flush_buffers", memcached_flush_buffers(client));
  got(client, "many997");
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, 0);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_NOREPLY, 0);
}

static void without_blocking(memcached_st *client)
{
  say("no block: %d", memcached_behavior_set(client, MEMCACHED_BEHAVIOR_NO_BLOCK, 1));
  say("nodelay: %d", memcached_behavior_set(client, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1));
  set_many(client, "no block", 1000);
  got(client, "many999");
  uint64_t number = 77;
  memcached_set(client, S("n"), S("1"), 0, 1);
  told(client, "increment", memcached_increment(client, S("n"), 1, &number));
  say("%" PRIu64, number);
  told(client, "delete", memcached_delete(client, S("n"), 0));
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_NO_BLOCK, 0);
}

static void left(char **servers, bool binary)
{
  memcached_st *client = client_of(servers, binary);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, 1);
  memcached_set(client, S("left"), S("behind"), 0, 0);
  memcached_quit(client);
  got(client, "left");
  memcached_set(client, S("left"), S("again"), 0, 0);
  memcached_free(client);
  client = client_of(servers, binary);
  got(client, "left");
  memcached_free(client);
}

int main(int argc, char **argv)
{
  (void) argc;
  for (int binary = 0; binary < 2; binary++) {
    topic = protocols[binary];
    memcached_st *client = fresh_client_of(argv + 1, binary);
    buffered(client);
    without_answers(client);
    without_blocking(client);
    memcached_free(client);
    left(argv + 1, binary);
  }
  return 0;
}
