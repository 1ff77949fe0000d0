/* Speaks through a socket of the file system: sockets PATH */
#include "transcript.h"

int main(int argc, char **argv)
{
  (void) argc;
  hides_hosts = true;
  for (int binary = 0; binary < 2; binary++) {
    topic = protocols[binary];
    memcached_st *client = memcached_create(NULL);
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, binary);
    told(client, "add", memcached_server_add_unix_socket_with_weight(client, argv[1], 2));
    told(client, "flush", memcached_flush(client, 0));
    told(client, "set", memcached_set(client, S("a"), S("x"), 0, 1));
    got(client, "a");
    memcached_free(client);

    char text[500];
    snprintf(text, sizeof text, "--SOCKET=\"%s\"", argv[1]);
    client = memcached(text, strlen(text));
    say("a client: %d", client != NULL);
    got(client, "a");
    told(client, "delete", memcached_delete(client, S("a"), 0));
    memcached_free(client);

    client = memcached_create(NULL);
    // A name that begins with a slash is a path.
    told(client, "add", memcached_server_add(client, argv[1], 0));
    told(client, "set", memcached_set(client, S("b"), S("y"), 0, 2));
    got(client, "b");
    memcached_free(client);
  }
  return 0;
}
