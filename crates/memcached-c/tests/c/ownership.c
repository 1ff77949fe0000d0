/* Whose memory is whose, and what is null with which code. It knows what is right. */
#include "transcript.h"
#include <arpa/inet.h>
#include <libmemcachedutil-1.0/pool.h>
#include <pthread.h>
#include <sasl/sasl.h>
#include <sys/socket.h>
#include <unistd.h>

static int failures;
static void expect(bool is_right, const char *what)
{
  if (!is_right) {
    printf("wrong: %s\n", what);
    failures++;
  }
}

/* Memory that can run out. */
static bool is_empty;
static void *give(const memcached_st *client, const size_t bytes, void *context)
{
  (void) client, (void) context;
  return is_empty ? NULL : malloc(bytes);
}
static void take(const memcached_st *client, void *memory, void *context)
{
  (void) client, (void) context;
  free(memory);
}
static void *enlarge(const memcached_st *client, void *memory, const size_t bytes, void *context)
{
  (void) client, (void) context;
  return is_empty ? NULL : realloc(memory, bytes);
}
static void *give_zeros(const memcached_st *client, size_t count, const size_t bytes, void *context)
{
  (void) client, (void) context;
  return is_empty ? NULL : calloc(count, bytes);
}

static int misses;
static memcached_return_t count_miss(const memcached_st *client, const char *key, size_t length,
                                     memcached_result_st *result)
{
  (void) client, (void) key, (void) length, (void) result;
  misses++;
  return MEMCACHED_FAILURE;
}

static void memory_that_runs_out(memcached_st *client)
{
  memcached_return_t rc = memcached_set_memory_allocators(client, give, take, enlarge, give_zeros, NULL);
  expect(rc == MEMCACHED_SUCCESS, "allocators are set");
  memcached_set(client, S("a"), S("value"), 0, 0);
  is_empty = true;
  rc = MEMCACHED_SUCCESS;
  expect(memcached_stat(client, NULL, &rc) == NULL, "statistics are null");
  expect(rc == MEMCACHED_MEMORY_ALLOCATION_FAILURE, "the code of null statistics");
  size_t length = 1;
  uint32_t flags;
  rc = MEMCACHED_SUCCESS;
  expect(memcached_get(client, S("a"), &length, &flags, &rc) == NULL && length == 0, "a value is null");
  expect(rc == MEMCACHED_MEMORY_ALLOCATION_FAILURE, "the code of a null value");
  memcached_callback_set(client, MEMCACHED_CALLBACK_GET_FAILURE, (void *) count_miss);
  misses = 0;
  memcached_get(client, S("missing"), &length, &flags, &rc);
  expect(misses == 0 && rc == MEMCACHED_MEMORY_ALLOCATION_FAILURE, "a miss without memory for its result");
  memcached_callback_set(client, MEMCACHED_CALLBACK_GET_FAILURE, NULL);
  is_empty = false;
  char *value = memcached_get(client, S("a"), &length, &flags, &rc);
  expect(value && length == 5 && memcmp(value, "value", 5) == 0, "the value is there afterwards");
  free(value);
  memcached_set_memory_allocators(client, NULL, NULL, NULL, NULL, NULL);
}

/* Values are decrypted in both protocols, alone and among many; one that cannot be takes none of the others along. */
static void encrypted_values(memcached_st *client, const char *server)
{
  memcached_st *plain = memcached_create(NULL);
  add_server(plain, server);
  memcached_st *sealed = memcached_clone(NULL, client);
  memcached_set_encoding_key(sealed, S("a key of the program's, of 32 bytes and more"));
  memcached_set(sealed, S("one"), S("first"), 0, 0);
  memcached_set(plain, S("two"), S("not encrypted"), 0, 0);
  memcached_set(sealed, S("three"), S("third"), 0, 0);
  memcached_return_t rc;
  size_t length;
  uint32_t flags;
  char *value = memcached_get(sealed, S("one"), &length, &flags, &rc);
  expect(value && length == 5 && memcmp(value, "first", 5) == 0, "a value is decrypted");
  free(value);
  value = memcached_get(sealed, S("two"), &length, &flags, &rc);
  expect(value == NULL && rc == MEMCACHED_FAILURE, "what was not encrypted is no value");
  const char *keys[] = {"one", "two", "three"};
  size_t lengths[] = {3, 3, 5};
  memcached_mget(sealed, keys, lengths, 3);
  int sound = 0, garbled = 0;
  memcached_result_st result;
  memcached_result_create(sealed, &result);
  do {
    if (memcached_fetch_result(sealed, &result, &rc) != NULL) {
      sound += memcached_result_length(&result) == 5;
    }
    garbled += rc == MEMCACHED_FAILURE;
  } while (rc == MEMCACHED_SUCCESS || rc == MEMCACHED_FAILURE);
  memcached_result_free(&result);
  expect(sound == 2 && garbled == 1, "of many values all but one are decrypted");
  memcached_set_encoding_key(sealed, NULL, 0);
  value = memcached_get(sealed, S("two"), &length, &flags, &rc);
  expect(value && length == 13, "without a key nothing is decrypted");
  free(value);
  memcached_free(sealed);
  memcached_free(plain);
}

static int give_nothing(void *context, int id, const char **text, unsigned *length)
{
  (void) context, (void) id, (void) text, (void) length;
  return SASL_FAIL;
}

/* A pool whose clones cannot be made: their logins cannot be copied. */
static void pool_without_clients(void)
{
  memcached_st *master = memcached_create(NULL);
  sasl_callback_t callbacks[] = {
    {SASL_CB_USER, (int (*)(void)) (void *) give_nothing, NULL},
    {SASL_CB_LIST_END, NULL, NULL},
  };
  memcached_set_sasl_callbacks(master, callbacks);
  memcached_pool_st *pool = memcached_pool_create(master, 1, 2);
  memcached_return_t rc = MEMCACHED_SUCCESS;
  expect(pool != NULL && memcached_pool_pop(pool, false, &rc) == NULL, "a pool without clients gives none");
  expect(rc == MEMCACHED_NOT_SUPPORTED, "the code of no client: the login could not be copied");
  expect(memcached_pool_destroy(pool) == master, "the master is the program's");
  memcached_set_sasl_callbacks(master, NULL);
  memcached_free(master);
}

static int calls;

static memcached_return_t reset_servers(const memcached_st *client, const memcached_instance_st *server, void *context)
{
  (void) context;
  calls++;
  expect(server != NULL, "a function gets a server");
  memcached_servers_reset((memcached_st *) client);
  return MEMCACHED_SUCCESS;
}

static memcached_return_t reset_at_statistic(const memcached_instance_st *server, const char *name, size_t name_length,
                                             const char *value, size_t value_length, void *context)
{
  (void) name, (void) name_length, (void) value, (void) value_length;
  calls++;
  expect(server != NULL, "a function gets the statistic of a server");
  memcached_servers_reset(context);
  return MEMCACHED_SUCCESS;
}

static void servers_that_go(const char *server)
{
  memcached_st *client = memcached_create(NULL);
  memcached_server_fn servers[] = {reset_servers, reset_servers};
  for (int i = 0; i < 3; i++) {
    add_server(client, server);
  }
  calls = 0;
  expect(memcached_server_cursor(client, servers, NULL, 2) == MEMCACHED_SUCCESS && calls == 1, "a cursor ends");
  for (int i = 0; i < 3; i++) {
    add_server(client, server);
  }
  calls = 0;
  memcached_stat_execute(client, NULL, reset_at_statistic, client);
  expect(calls == 1, "statistics end");
  memcached_free(client);
}

static unsigned char *taken[16];

/* Frees a client, and takes the memory that it leaves, if it leaves any. */
static uint32_t free_client(const char *key, size_t length, void *context)
{
  (void) key, (void) length;
  if (calls++ == 0) {
    memcached_free(*(memcached_st **) context);
    for (int i = 0; i < 16; i++) {
      taken[i] = malloc(sizeof(memcached_st));
      memset(taken[i], 0xaa, sizeof(memcached_st));
    }
  }
  return 0;
}

/* A client that a function frees in the middle of a call: the end of the call writes to no memory of the program. */
static void client_that_goes(const char *server)
{
  memcached_st *client = memcached_create(NULL);
  add_server(client, server);
  add_server(client, server);
  hashkit_st kit;
  hashkit_create(&kit);
  hashkit_set_custom_function(&kit, free_client, &client);
  memcached_set_hashkit(client, &kit);
  hashkit_free(&kit);
  calls = 0;
  memcached_set(client, S("a"), S("value"), 0, 0);
  expect(calls > 0, "a client is freed in a function");
  bool is_whole = true;
  for (int i = 0; i < 16; i++) {
    for (size_t at = 0; at < sizeof(memcached_st); at++) {
      is_whole &= taken[i][at] == 0xaa;
    }
    free(taken[i]);
  }
  expect(is_whole, "a client that is freed in a function: nothing is written to its memory");
}

static memcached_return_t look(const memcached_st *client, memcached_result_st *result, void *context)
{
  (void) result, (void) context;
  calls++;
  const memcached_instance_st *server = memcached_server_instance_by_position(client, 0);
  expect(memcached_server_count(client) == 1 && server != NULL && memcached_server_port(server) != 0,
         "a function sees the server");
  expect(memcached_server_by_key((memcached_st *) client, S("a"), NULL) == server, "and finds it for a key");
  expect(memcached_callback_get((memcached_st *) client, MEMCACHED_CALLBACK_PREFIX_KEY, NULL) != NULL,
         "and sees the namespace");
  expect(memcached_behavior_get((memcached_st *) client, MEMCACHED_BEHAVIOR_POLL_TIMEOUT) == 60000,
         "and sees the settings");
  return MEMCACHED_SUCCESS;
}

static void functions_that_look(memcached_st *client)
{
  const char *keys[] = {"a"};
  size_t lengths[] = {1};
  memcached_execute_fn functions[] = {look};
  memcached_callback_set(client, MEMCACHED_CALLBACK_PREFIX_KEY, "space.");
  memcached_set(client, S("a"), S("value"), 0, 0);
  calls = 0;
  memcached_mget(client, keys, lengths, 1);
  memcached_return_t rc = memcached_fetch_execute(client, functions, NULL, 1);
  expect(rc != MEMCACHED_SOME_ERRORS && calls == 1, "an item is fetched");
  memcached_callback_set(client, MEMCACHED_CALLBACK_PREFIX_KEY, NULL);
}

/* What is refused before a server is asked leaves the program's result to the program. */
static void result_of_a_caller(void)
{
  memcached_st *client = memcached_create(NULL);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_USE_UDP, 1);
  memcached_result_st *result = memcached_result_create(client, NULL);
  memcached_result_set_value(result, S("kept"));
  memcached_return_t rc = MEMCACHED_SUCCESS;
  expect(memcached_fetch_result(client, result, &rc) == NULL && rc == MEMCACHED_NOT_SUPPORTED, "UDP has no results");
  expect(memcached_result_length(result) == 4 && strcmp(memcached_result_value(result), "kept") == 0,
         "the result is as it was");
  memcached_result_free(result);
  memcached_free(client);
}

/* A client's own text as the value of its next request, which forgets the error that the text is of. */
static void message_as_value(memcached_st *client)
{
  for (int of_server = 0; of_server < 2; of_server++) {
    memcached_return_t rc;
    size_t length;
    uint32_t flags;
    if (of_server) {
      memcached_set(client, S("text"), S("x"), 0, 0);
      memcached_increment(client, S("text"), 1, NULL);
    } else {
      memcached_set(client, S(""), S("x"), 0, 0);
    }
    const memcached_instance_st *server = memcached_server_instance_by_position(client, 0);
    const char *message = of_server ? memcached_server_error(server) : memcached_last_error_message(client);
    char *copy = strdup(message);
    expect(strlen(copy) > 10, "there is a message");
    /* What takes the place of memory that was given back. */
    expect(memcached_set(client, S("message"), message, strlen(message), 0, 0) == MEMCACHED_SUCCESS, "it is stored");
    char *value = memcached_get(client, S("message"), &length, &flags, &rc);
    expect(value && length == strlen(copy) && memcmp(value, copy, length) == 0, "it is stored as it was");
    free(value);
    free(copy);
  }
}

static int listener;
static char sent[4096];
static ssize_t sent_bytes;

static void *take_request(void *unused)
{
  (void) unused;
  int peer = accept(listener, NULL, NULL);
  while (sent_bytes < 24 + 5 + 9) {
    ssize_t bytes = recv(peer, sent + sent_bytes, sizeof sent - (size_t) sent_bytes, 0);
    if (bytes <= 0) {
      break;
    }
    sent_bytes += bytes;
  }
  close(peer);
  return NULL;
}

/* Passwords have any bytes but NUL; so has a copy of them. */
static void passwords_of_bytes(void)
{
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  listener = socket(AF_INET, SOCK_STREAM, 0);
  bind(listener, (struct sockaddr *) &address, length);
  listen(listener, 10);
  getsockname(listener, (struct sockaddr *) &address, &length);
  pthread_t thread;
  pthread_create(&thread, NULL, take_request, NULL);

  memcached_st *client = memcached_create(NULL);
  expect(memcached_set_sasl_auth_data(client, "ann\xfc", "\xff\xfe!") == MEMCACHED_SUCCESS, "a password of bytes");
  memcached_server_add(client, "127.0.0.1", ntohs(address.sin_port));
  memcached_st *clone = memcached_clone(NULL, client);
  memcached_free(client);
  expect(clone != NULL, "a copy of it");
  memcached_set(clone, S("a"), S("x"), 0, 0);
  pthread_join(thread, NULL);
  expect(sent_bytes >= 24 + 5 + 9 && memcmp(sent + 24, "PLAIN\0ann\xfc\0\xff\xfe!", 5 + 9) == 0, "it is sent as it is");
  memcached_free(clone);
  close(listener);
}

static void long_hosts(void)
{
  char text[3000];
  memset(text, 'x', sizeof text);
  memcpy(text, "before:1,", 9);
  strcpy(text + 2000, ":2,after:3");
  memcached_server_list_st list = memcached_servers_parse(text);
  expect(list == NULL, "a list with a host that is too long is no list");
  memcached_server_list_free(list);
  strcpy(text + 9 + 1000, ":2,after:3");
  list = memcached_servers_parse(text);
  expect(memcached_server_list_count(list) == 3, "a host of 1000 bytes is one");
  memcached_server_list_free(list);
}

/* A list is added as a whole, or not at all. */
static void lists_with_a_wrong_server(void)
{
  memcached_st *client = memcached_create(NULL);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_DISTRIBUTION, MEMCACHED_DISTRIBUTION_CONSISTENT);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_USE_UDP, 1);
  memcached_server_add(client, "first", 1);
  memcached_server_list_st list = memcached_servers_parse("second:2:7,/tmp/socket,third:3");
  expect(memcached_server_push(client, list) == MEMCACHED_INVALID_HOST_PROTOCOL, "a wrong server: the error");
  expect(memcached_server_count(client) == 1, "a wrong server: those before it are not added");
  expect(!memcached_behavior_get(client, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED), "a wrong server: nor their weights");
  memcached_server_list_free(list);
  memcached_free(client);
}

static void keys_that_cannot_be(void)
{
  memcached_st *client = memcached_create(NULL);
  expect(memcached_set_encoding_key(client, "key", SIZE_MAX) == MEMCACHED_INVALID_ARGUMENTS, "a key that cannot be");
  memcached_free(client);
}

/* PHP fetches nothing after a multi-get that has failed: it fails if no server was asked. */
static void servers_that_are_away(char *server)
{
  const char *keys[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
  const size_t lengths[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  for (int binary = 0; binary < 2; binary++) {
    char *servers[] = {server, NULL};
    memcached_st *client = client_of(servers, binary);
    memcached_server_add(client, "127.0.0.1", 1);
    size_t count = 0;
    for (int i = 0; i < 10; i++) {
      count += memcached_set(client, keys[i], 1, S("x"), 0, 0) == MEMCACHED_SUCCESS;
    }
    expect(count > 0 && count < 10, "each server has keys");
    expect(memcached_mget(client, keys, lengths, 10) == MEMCACHED_SUCCESS, "one of two servers is asked");
    memcached_return_t rc;
    memcached_result_st *result;
    while ((result = memcached_fetch_result(client, NULL, &rc)) != NULL) {
      count--;
      memcached_result_free(result);
    }
    expect(count == 0, "all its items are fetched");
    memcached_free(client);
  }
}

int main(int argc, char **argv)
{
  if (argc != 2) {
    return 2;
  }
  for (int binary = 0; binary < 2; binary++) {
    char *servers[] = {argv[1], NULL};
    memcached_st *client = client_of(servers, binary);
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, 60000);
    memory_that_runs_out(client);
    functions_that_look(client);
    encrypted_values(client, argv[1]);
    message_as_value(client);
    memcached_free(client);
  }
  pool_without_clients();
  servers_that_go(argv[1]);
  client_that_goes(argv[1]);
  servers_that_are_away(argv[1]);
  result_of_a_caller();
  passwords_of_bytes();
  long_hosts();
  lists_with_a_wrong_server();
  keys_that_cannot_be();
  if (failures == 0) {
    printf("all is as it should be\n");
  }
  return failures > 0;
}
