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
  namespaces_with_commands(sound);
  if (failures == 0) {
    printf("nothing is injected\n");
  }
  return failures > 0;
}
