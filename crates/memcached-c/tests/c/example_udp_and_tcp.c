/* The second example of Eric Lambert's "basic UDP support in libmemcached" (March 2009), between the two remarks. A
 * block is added, since it names two variables `value`. The datagram may come after the request that looks for it. */
#include <libmemcached/memcached.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
  /* --- */
memcached_st *udp_client;
memcached_st *tcp_client;
//creates udp handle for client instance
udp_client= memcached_create(NULL);
//creates tcp handle for client instance
tcp_client= memcached_create(NULL);
//turns on udp behavior for the udp client handle
memcached_behavior_set(udp_client, MEMCACHED_BEHAVIOR_USE_UDP, 1);
//add the server 127.0.0.1:11211 to the clients
memcached_server_add_udp(udp_client, "127.0.0.1", 11211);
memcached_server_add(tcp_client, "127.0.0.1", 11211);
//store some data
char *key= "foo";
char *value= "when we sanitize";
memcached_return rc= memcached_set(udp_client, key, strlen(key),value, strlen(value),(time_t)0, (uint32_t)0);
//get some data; note we use the tcp client
size_t vlen;
uint32_t flags;
{
char * value= memcached_get(tcp_client, key, strlen(key),&vlen,&flags,&rc);
  /* --- */
  printf("%d %s: %.*s\n", rc, memcached_strerror(tcp_client, rc), value ? (int) vlen : 0, value ? value : "");
  free(value);
}
  memcached_free(udp_client);
  memcached_free(tcp_client);
  return rc != MEMCACHED_SUCCESS;
}
