/* Logs in with SASL: login SERVER USER PASSWORD */
#include "transcript.h"
#include <libmemcached/util.h>

static void try(const char *server, const char *user, const char *password, bool binary)
{
  memcached_st *client = memcached_create(NULL);
  add_server(client, server);
  say("binary: %d", memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, binary));
  if (user) {
    told(client, "login", memcached_set_sasl_auth_data(client, user, password));
    say("callbacks: %d", memcached_get_sasl_callbacks(client) != NULL);
  }
  if (user) {
    told(client, "set", memcached_set(client, S("a"), S("x"), 0, 1));
    got(client, "a");
    memcached_st *copy = memcached_clone(NULL, client);
    got(copy, "a");
    memcached_free(copy);
  } else {
    say("set: %d", memcached_set(client, S("a"), S("x"), 0, 1));
  }
  say("logout: %d", memcached_destroy_sasl_auth_data(client));
  memcached_free(client);
}

int main(int argc, char **argv)
{
  if (argc < 4) {
    return 2;
  }
  const char *server = argv[1], *user = argv[2], *password = argv[3];
  topic = "right";
  try(server, user, password, true);
  topic = "wrong";
  try(server, user, "wrong", true);
  topic = "none";
  try(server, NULL, NULL, true);
  topic = "text";
  try(server, user, password, false);

  topic = "utilities";
  const char *colon = strrchr(server, ':');
  char host[256];
  snprintf(host, sizeof host, "%.*s", (int) (colon - server), server);
  in_port_t port = (in_port_t) atoi(colon + 1);
  memcached_return_t rc;
  say("ping2: %d", libmemcached_util_ping2(host, port, user, password, &rc));
  say("rc %d", rc);
  say("ping2, wrong: %d", libmemcached_util_ping2(host, port, user, "wrong", &rc));
  say("rc %d", rc);
  say("getpid2: %d", libmemcached_util_getpid2(host, port, user, password, &rc) > 0);
  say("rc %d", rc);
  return 0;
}
