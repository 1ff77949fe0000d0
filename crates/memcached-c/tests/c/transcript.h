/* What the programs share. Each prints, line by line, what the library answers; two libraries that answer alike
 * print the same. What differs between runs of one library (addresses, its own lines) is left out. */
#ifndef TRANSCRIPT_H
#define TRANSCRIPT_H

#include <ctype.h>
#include <inttypes.h>
#include <libmemcached/memcached.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S(text) (text), strlen(text)

/* Both protocols, by the name that the lines begin with. */
static const char *const protocols[] = {"text", "binary"};
static const char *topic = "";

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  printf("%s: ", topic);
  vprintf(format, arguments);
  putchar('\n');
  fflush(stdout);
  va_end(arguments);
}

/* A value as it can be compared: its bytes, or of a long one length and FNV-1a. */
static const char *shown(const char *value, size_t length)
{
  static char texts[4][512];
  static int next;
  char *text = texts[next++ % 4];
  if (value == NULL) {
    return "null";
  }
  if (length > 100) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < length; i++) {
      hash = (hash ^ (unsigned char) value[i]) * 1099511628211u;
    }
    sprintf(text, "%zu bytes, %016" PRIx64, length, hash);
    return text;
  }
  char *end = text + sprintf(text, "\"");
  for (size_t i = 0; i < length; i++) {
    end += sprintf(end, isprint((unsigned char) value[i]) ? "%c" : "\\x%02x", (unsigned char) value[i]);
  }
  strcpy(end, "\"");
  return text;
}

/* Whether the servers are others in each run. */
static bool hides_hosts;

/* A message without the address that it begins with and the line of source that it ends with. */
static const char *message(const char *text)
{
  static char kept[4096];
  if (text == NULL) {
    return "none";
  }
  const char *start = text[0] == '(' ? strstr(text, ") ") : NULL;
  snprintf(kept, sizeof kept, "%s", start ? start + 2 : text);
  char *end = strstr(kept, hides_hosts && strstr(kept, " host: ") ? " host: " : " -> ");
  if (end) {
    *end = 0;
  }
  return kept;
}

/* An answer, and what the client tells of it afterwards. */
static memcached_return_t told(memcached_st *client, const char *what, memcached_return_t rc)
{
  say("%s: %d %s, last %d, errno %d, %s", what, rc, memcached_strerror(client, rc), memcached_last_error(client),
      memcached_last_error_errno(client), message(memcached_last_error_message(client)));
  return rc;
}

/* Gets a value and tells it. */
static void got(memcached_st *client, const char *key)
{
  size_t length = 77;
  uint32_t flags = 77;
  memcached_return_t rc = MEMCACHED_MAXIMUM_RETURN;
  char *value = memcached_get(client, S(key), &length, &flags, &rc);
  char what[600];
  snprintf(what, sizeof what, "get %s: %s, %zu bytes, flags %u", shown(key, strlen(key)), shown(value, length), length,
           flags);
  told(client, what, rc);
  free(value);
}

/* The version of an item; 0 without one. */
static uint64_t version_of(memcached_st *client, const char *key)
{
  const char *keys[] = {key};
  size_t lengths[] = {strlen(key)};
  memcached_return_t rc = memcached_mget(client, keys, lengths, 1);
  uint64_t version = 0;
  memcached_result_st *result;
  while ((result = memcached_fetch_result(client, NULL, &rc)) != NULL) {
    version = memcached_result_cas(result);
    memcached_result_free(result);
  }
  return version;
}

/* Adds `HOST:PORT`. */
static memcached_return_t add_server(memcached_st *client, const char *server)
{
  const char *colon = strrchr(server, ':');
  char host[256];
  snprintf(host, sizeof host, "%.*s", (int) (colon - server), server);
  return memcached_server_add(client, host, (in_port_t) atoi(colon + 1));
}

/* A client of the servers in `servers`, which end with a null. */
static memcached_st *client_of(char **servers, bool binary)
{
  memcached_st *client = memcached_create(NULL);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, binary);
  for (; *servers; servers++) {
    add_server(client, *servers);
  }
  return client;
}

/* The same, of servers that hold nothing. */
static memcached_st *fresh_client_of(char **servers, bool binary)
{
  memcached_st *client = client_of(servers, binary);
  memcached_flush(client, 0);
  return client;
}

#endif
