/* Values that are encrypted: what is stored, what is read, and what is not possible. Keys have at least 32 bytes: of
 * shorter ones libmemcached reads what is behind them. */
#include "transcript.h"
#include <libhashkit/hashkit.h>

#define KEY "0123456789abcdef0123456789abcdef of the program"

static void encrypted(char **servers, bool binary)
{
  memcached_st *client = fresh_client_of(servers, binary);
  memcached_st *plain = client_of(servers, binary);
  told(client, "key", memcached_set_encoding_key(client, S(KEY)));
  const size_t sizes[] = {0, 1, 15, 16, 17, 1000, 70000};
  char *value = malloc(70000);
  for (size_t i = 0; i < 70000; i++) {
    value[i] = (char) (i * 7 + i / 256);
  }
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char key[30];
    sprintf(key, "of-%zu-bytes", sizes[i]);
    told(client, key, memcached_set(client, S(key), value, sizes[i], 0, (uint32_t) i));
    if (!binary) {
      /* libmemcached decrypts none in the binary protocol. */
      got(client, key);
    }
    /* What is on the server: this decides whether one library reads what the other has stored. */
    got(plain, key);
  }
  told(client, "add", memcached_add(client, S("added"), S("of add"), 0, 0));
  got(plain, "added");
  told(client, "replace", memcached_replace(client, S("added"), S("of replace"), 0, 0));
  got(plain, "added");
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_SUPPORT_CAS, 1);
  uint64_t version = version_of(client, "added");
  told(client, "cas", memcached_cas(client, S("added"), S("of cas"), 0, 0, version));
  got(plain, "added");
  told(client, "append", memcached_append(client, S("added"), S("x"), 0, 0));
  told(client, "prepend", memcached_prepend(client, S("added"), S("x"), 0, 0));
  memcached_set(plain, S("number"), S("1"), 0, 0);
  uint64_t number = 0;
  told(client, "increment", memcached_increment(client, S("number"), 1, &number));
  told(client, "decrement", memcached_decrement_by_key(client, S("group"), S("number"), 1, &number));
  told(client, "increment with initial",
       memcached_increment_with_initial(client, S("number"), 1, 1, 0, &number));
  got(plain, "number");
  memcached_st *clone = memcached_clone(NULL, client);
  told(clone, "set by a clone", memcached_set(clone, S("added"), S("of a clone"), 0, 0));
  got(plain, "added");
  memcached_free(clone);
  told(client, "another key", memcached_set_encoding_key(client, S("another key, which is as long as the others are")));
  if (!binary) {
    /* The code differs: libmemcached finds nothing. */
    size_t length;
    uint32_t flags;
    memcached_return_t rc;
    char *read = memcached_get(client, S("added"), &length, &flags, &rc);
    say("of another key: %s, failed %d, %s", shown(read, length), memcached_failed(rc),
        message(memcached_last_error_message(client)));
    free(read);
  }
  told(client, "set", memcached_set(client, S("added"), S("of another key"), 0, 0));
  got(plain, "added");
  free(value);
  memcached_free(client);
  memcached_free(plain);
}

int main(int argc, char **argv)
{
  (void) argc;
  for (int binary = 0; binary < 2; binary++) {
    topic = protocols[binary];
    encrypted(argv + 1, binary);
  }
  topic = "hashkit";
  hashkit_st *kit = hashkit_create(NULL);
  say("key: %d", hashkit_key(kit, S(KEY)));
  hashkit_st *clone = hashkit_clone(NULL, kit);
  hashkit_free(kit);
  hashkit_string_st *text = hashkit_encrypt(clone, S("a text"));
  say("encrypted: %s", shown(hashkit_string_c_str(text), hashkit_string_length(text)));
  hashkit_string_st *back = hashkit_decrypt(clone, hashkit_string_c_str(text), hashkit_string_length(text));
  say("decrypted: %s", shown(hashkit_string_c_str(back), hashkit_string_length(back)));
  hashkit_string_free(text);
  hashkit_string_free(back);
  say("not encrypted: %d", hashkit_decrypt(clone, S("a text")) == NULL);
  hashkit_free(clone);
  return 0;
}
