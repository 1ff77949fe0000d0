/* Nothing is taken for a command, or for the reply to another request. It knows what is right. */
#include "stub.h"

/* A server that answers every request with this. */
static struct endless replying(const char *reply)
{
  return (struct endless){.head = reply, .head_bytes = strlen(reply), .part = ""};
}

/* What nobody has asked for is not the reply to the next request. */
static void replies_too_many(void)
{
  struct endless eager = replying("VALUE a 0 1\r\nx\r\nEND\r\nVALUE b 0 5\r\nEXTRA\r\nEND\r\n");
  memcached_st *client = client_at(start(&eager), false, 60000);
  for (const char *key = "ab"; *key; key++) {
    size_t length = 0;
    uint32_t flags = 0;
    memcached_return_t rc = MEMCACHED_SUCCESS;
    char *value = memcached_get(client, key, 1, &length, &flags, &rc);
    expect((value != NULL) == (*key == 'a'), "replies too many: only what was asked for");
    free(value);
  }
  memcached_free(client);
}

/* Replies to buffered requests that are not one for each: the next request has none of them. */
static void replies_to_a_split_request(void)
{
  struct endless split = replying("CLIENT_ERROR bad command line format\r\nERROR\r\nSTORED\r\nNOT_STORED\r\n");
  memcached_st *client = client_at(start(&split), false, 60000);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, 1);
  memcached_set(client, S("a"), S("x"), 0, 0);
  memcached_set(client, S("b"), S("x"), 0, 0);
  memcached_return_t rc = memcached_add(client, S("b"), S("y"), 0, 0);
  expect(rc != MEMCACHED_SUCCESS, "a reply to a split request is none to the next");
  memcached_free(client);
}

/* An error may be that of a flush without a reply: the connection is not used again. */
static void errors_of_a_quiet_flush(void)
{
  struct endless errors = replying("CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
  memcached_st *client = client_at(start(&errors), false, 60000);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_NOREPLY, 1);
  memcached_flush(client, 0);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_NOREPLY, 0);
  for (int i = 0; i < 2; i++) {
    expect(memcached_delete(client, S("a"), 0) != MEMCACHED_SUCCESS, "an error of a quiet flush");
  }
  expect(errors.clients == 2, "an error of a quiet flush: the connection is closed");
  memcached_free(client);
}

/* A server that wants a login reads the value of a store as a command: it is not asked again on this connection. */
static void values_before_a_login(void)
{
  struct endless stern = replying("CLIENT_ERROR unauthenticated\r\n");
  memcached_st *client = client_at(start(&stern), false, 60000);
  for (int i = 0; i < 2; i++) {
    expect(memcached_add(client, S("a"), S("x"), 0, 0) == MEMCACHED_CLIENT_ERROR, "a store before a login");
  }
  expect(stern.clients == 2, "a store before a login: the connection is closed");
  memcached_free(client);
}

/* What a server that is lost has is not missing, whoever answers next. */
static void items_of_a_lost_server(void)
{
  for (int executes = 0; executes < 2; executes++) {
    struct endless lost = replying("");
    char reply[] = "VALUE k 0 1\r\nx\r\nEND\r\n";
    struct endless sound = replying(reply);
    memcached_st *client = client_at(start(&lost), false, 60000);
    memcached_server_add(client, "127.0.0.1", start(&sound));
    reply[6] = key_at(client, 1);
    ask_both(client);
    /* So that both have answered. */
    usleep(200000);
    if (executes) {
      expect(memcached_fetch_execute(client, NULL, NULL, 0) == MEMCACHED_CONNECTION_FAILURE,
             "items of a lost server: the error of all");
    } else {
      expect(error_of_fetch(client) == MEMCACHED_SUCCESS, "items of a lost server: the other one's");
      expect(error_of_fetch(client) == MEMCACHED_CONNECTION_FAILURE, "items of a lost server: the error");
      expect(error_of_fetch(client) == MEMCACHED_NOTFOUND, "items of a lost server: it is told once");
    }
    memcached_free(client);
  }
}

/* Nor is an item that its server could not read; the others come. */
static void items_that_fail(void)
{
  static const char reply[] = "\x81\x0d\0\0\0\0\0\x82\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                              "\x81\x0d\0\1\4\0\0\0\0\0\0\6\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0bx"
                              "\x81\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\0";
  struct endless failing = {.head = reply, .head_bytes = sizeof reply - 1, .part = ""};
  memcached_st *client = client_at(start(&failing), true, 60000);
  const char *keys[] = {"a", "b"};
  size_t lengths[] = {1, 1};
  expect(memcached_mget(client, keys, lengths, 2) == MEMCACHED_SUCCESS, "items that fail are asked for");
  expect(error_of_fetch(client) == MEMCACHED_MEMORY_ALLOCATION_FAILURE, "an item that fails: the error");
  expect(error_of_fetch(client) == MEMCACHED_SUCCESS, "an item that fails: the next one");
  expect(error_of_fetch(client) == MEMCACHED_END, "an item that fails: the end");
  memcached_free(client);
}

/* A namespace that the binary protocol takes is none of the text protocol. */
static void namespaces_with_commands(in_port_t sound)
{
  memcached_st *client = client_at(sound, false, 60000);
  memcached_set(client, S("kept"), S("x"), 0, 0);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, 1);
  memcached_return_t rc = memcached_callback_set(client, MEMCACHED_CALLBACK_NAMESPACE, "x\r\nflush_all\r\nget ");
  expect(rc == MEMCACHED_SUCCESS, "the binary protocol takes any namespace");
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, 0);
  size_t length;
  uint32_t flags;
  memcached_get(client, S("a"), &length, &flags, &rc);
  expect(rc == MEMCACHED_BAD_KEY_PROVIDED, "a namespace with commands: the error");
  const char *keys[] = {"a"};
  size_t lengths[] = {1};
  expect(memcached_mget(client, keys, lengths, 1) == MEMCACHED_BAD_KEY_PROVIDED, "a namespace with commands: mget");
  expect(memcached_set(client, S("a"), S("x"), 0, 0) == MEMCACHED_BAD_KEY_PROVIDED, "a namespace with commands: set");
  memcached_callback_set(client, MEMCACHED_CALLBACK_NAMESPACE, NULL);
  char *kept = memcached_get(client, S("kept"), &length, &flags, &rc);
  expect(kept != NULL, "a namespace with commands: none is executed");
  free(kept);
  memcached_free(client);
}

int main(int argc, char **argv)
{
  if (argc != 2) {
    return 2;
  }
  in_port_t sound = (in_port_t) atoi(strrchr(argv[1], ':') + 1);
  replies_too_many();
  replies_to_a_split_request();
  errors_of_a_quiet_flush();
  values_before_a_login();
  items_of_a_lost_server();
  items_that_fail();
  namespaces_with_commands(sound);
  if (failures == 0) {
    printf("nothing is injected\n");
  }
  return failures > 0;
}
