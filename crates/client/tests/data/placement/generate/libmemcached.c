/* Prints the server that libmemcached chooses for each key of standard input (in hexadecimal), or hashes with it.
   libmemcached hash ALGORITHM
   libmemcached SERVERS [OPTION=VALUE]...
   A server is HOST:PORT:WEIGHT or PATH:WEIGHT. Options are set in their order, and servers added at the word `servers`.
   `dead=HOST:PORT`: a server that refuses connections, to which requests are sent until it is ejected. */

#include <libmemcached/memcached.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *HASHES[] = {"default", "md5", "crc", "fnv1_64", "fnv1a_64", "fnv1_32", "fnv1a_32", "hsieh",
                               "murmur", "jenkins", "murmur3"};
static const char *DISTRIBUTIONS[] = {"modula", "consistent", "consistent_ketama", "random",
                                      "consistent_ketama_spy", "consistent_weighted", "virtual_bucket"};

static int position(const char **names, int count, const char *name) {
  for (int n = 0; n < count; n++)
    if (strcmp(names[n], name) == 0) return n;
  fprintf(stderr, "no %s\n", name);
  exit(1);
}

static int next_key(char *key) {
  char line[1024];
  if (!fgets(line, sizeof line, stdin)) return -1;
  int bytes = strcspn(line, "\n") / 2;
  for (int n = 0; n < bytes; n++) {
    unsigned byte;
    sscanf(line + 2 * n, "%2x", &byte);
    key[n] = byte;
  }
  return bytes;
}

static void check(memcached_return_t result, const char *what) {
  if (memcached_failed(result)) {
    fprintf(stderr, "%s: %s\n", what, memcached_strerror(NULL, result));
    exit(1);
  }
}

static void add_servers(memcached_st *client, char *servers) {
  for (char *server = strtok(servers, ","); server; server = strtok(NULL, ",")) {
    char *weight = strrchr(server, ':');
    *weight++ = 0;
    if (*server == '/') {
      check(memcached_server_add_unix_socket_with_weight(client, server, atoi(weight)), server);
    } else {
      char *port = strrchr(server, ':');
      *port++ = 0;
      check(memcached_server_add_with_weight(client, server, atoi(port), atoi(weight)), server);
    }
  }
}

static void print_name(const memcached_instance_st *server) {
  if (memcached_server_port(server)) printf("%s:%d\n", memcached_server_name(server), memcached_server_port(server));
  else printf("%s\n", memcached_server_name(server));
}

static void eject(memcached_st *client, const char *dead) {
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_SERVER_FAILURE_LIMIT, 1);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_RETRY_TIMEOUT, 3600);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_REMOVE_FAILED_SERVERS, 1);
  for (int n = 0; n < 1000; n++) {
    char key[32], name[300];
    int bytes = sprintf(key, "eject:%d", n);
    const memcached_instance_st *server =
        memcached_server_instance_by_position(client, memcached_generate_hash(client, key, bytes));
    sprintf(name, "%s:%d", memcached_server_name(server), memcached_server_port(server));
    if (strcmp(name, dead)) continue;
    size_t length;
    uint32_t flags;
    memcached_return_t result;
    free(memcached_get(client, key, bytes, &length, &flags, &result));
  }
}

int main(int argc, char **argv) {
  char key[1024];
  int bytes;
  if (argc == 3 && strcmp(argv[1], "hash") == 0) {
    memcached_hash_t hash = position(HASHES, 11, argv[2]);
    while ((bytes = next_key(key)) >= 0) printf("%08x\n", memcached_generate_hash_value(key, bytes, hash));
    return 0;
  }
  memcached_st *client = memcached_create(NULL);
  const char *dead = NULL;
  for (int n = 2; n < argc; n++) {
    char *name = argv[n], *value = strchr(name, '=');
    if (value) *value++ = 0;
    if (strcmp(name, "servers") == 0) {
      add_servers(client, argv[1]);
    } else if (strcmp(name, "hash") == 0) {
      check(memcached_behavior_set(client, MEMCACHED_BEHAVIOR_HASH, position(HASHES, 11, value)), value);
    } else if (strcmp(name, "distribution") == 0) {
      check(memcached_behavior_set_distribution(client, position(DISTRIBUTIONS, 7, value)), value);
    } else if (strcmp(name, "ketama") == 0) {
      check(memcached_behavior_set(client, MEMCACHED_BEHAVIOR_KETAMA, 1), name);
    } else if (strcmp(name, "ketama_weighted") == 0) {
      check(memcached_behavior_set(client, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED, 1), name);
    } else if (strcmp(name, "sort_hosts") == 0) {
      check(memcached_behavior_set(client, MEMCACHED_BEHAVIOR_SORT_HOSTS, 1), name);
    } else if (strcmp(name, "namespace") == 0) {
      check(memcached_callback_set(client, MEMCACHED_CALLBACK_NAMESPACE, value), name);
    } else if (strcmp(name, "hash_with_namespace") == 0) {
      check(memcached_behavior_set(client, MEMCACHED_BEHAVIOR_HASH_WITH_PREFIX_KEY, 1), name);
    } else if (strcmp(name, "buckets") == 0) {
      uint32_t map[64], count = 0;
      for (; value[count]; count++) map[count] = value[count] - '0';
      check(memcached_bucket_set(client, map, NULL, count, 0), name);
    } else if (strcmp(name, "dead") == 0) {
      dead = value;
    } else {
      fprintf(stderr, "no option %s\n", name);
      return 1;
    }
  }
  if (dead) eject(client, dead);
  while ((bytes = next_key(key)) >= 0)
    print_name(memcached_server_instance_by_position(client, memcached_generate_hash(client, key, bytes)));
  return 0;
}
