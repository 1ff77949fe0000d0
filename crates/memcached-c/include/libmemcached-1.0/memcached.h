/*
 * The client: the declarations of libmemcached 1.0 and 1.1, as liblarder_memcached has them. libmemcached's manual
 * describes them. Structs have the sizes and the fields of libmemcached's, so that programs built against either header
 * run with either library.
 */
#pragma once

#include <inttypes.h>
#include <libhashkit-1.0/hashkit.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>

#define LIBMEMCACHED_VERSION_STRING "1.1.4"
#define LIBMEMCACHED_VERSION_HEX    0x001001004
#define LIBMEMCACHED_WITH_SASL_SUPPORT 1
/* This is larder's. */
#define LIBMEMCACHED_LARDER 1

#define MEMCACHED_DEFAULT_PORT                   11211
#define MEMCACHED_DEFAULT_PORT_STRING            "11211"
#define MEMCACHED_POINTS_PER_SERVER              100
#define MEMCACHED_POINTS_PER_SERVER_KETAMA       160
#define MEMCACHED_DEFAULT_TIMEOUT                5000
#define MEMCACHED_DEFAULT_CONNECT_TIMEOUT        4000
#define MEMCACHED_EXPIRATION_NOT_ADD             0xffffffffU
#define MEMCACHED_SERVER_FAILURE_LIMIT           5
#define MEMCACHED_SERVER_FAILURE_RETRY_TIMEOUT   2
#define MEMCACHED_SERVER_FAILURE_DEAD_TIMEOUT    0
#define MEMCACHED_SERVER_TIMEOUT_LIMIT           0
#define MEMCACHED_MAX_BUFFER                     8196
#define MEMCACHED_MAX_KEY                        251 /* with its NUL */
#define MEMCACHED_MAX_NAMESPACE                  128 /* with its NUL */
#define MEMCACHED_MAX_INTEGER_DISPLAY_LENGTH     20
#define MEMCACHED_VERSION_STRING_LENGTH          24
#define MEMCACHED_PREFIX_KEY_MAX_SIZE            MEMCACHED_MAX_NAMESPACE
#define MEMCACHED_NI_MAXHOST                     1025
#define MEMCACHED_NI_MAXSERV                     32

#ifndef LIBMEMCACHED_API
#  define LIBMEMCACHED_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum memcached_return_t {
  MEMCACHED_SUCCESS,
  MEMCACHED_FAILURE,
  MEMCACHED_HOST_LOOKUP_FAILURE,
  MEMCACHED_CONNECTION_FAILURE,
  MEMCACHED_CONNECTION_BIND_FAILURE,
  MEMCACHED_WRITE_FAILURE,
  MEMCACHED_READ_FAILURE,
  MEMCACHED_UNKNOWN_READ_FAILURE,
  MEMCACHED_PROTOCOL_ERROR,
  MEMCACHED_CLIENT_ERROR,
  MEMCACHED_SERVER_ERROR,
  MEMCACHED_ERROR,
  MEMCACHED_DATA_EXISTS,
  MEMCACHED_DATA_DOES_NOT_EXIST,
  MEMCACHED_NOTSTORED,
  MEMCACHED_STORED,
  MEMCACHED_NOTFOUND,
  MEMCACHED_MEMORY_ALLOCATION_FAILURE,
  MEMCACHED_PARTIAL_READ,
  MEMCACHED_SOME_ERRORS,
  MEMCACHED_NO_SERVERS,
  MEMCACHED_END,
  MEMCACHED_DELETED,
  MEMCACHED_VALUE,
  MEMCACHED_STAT,
  MEMCACHED_ITEM,
  MEMCACHED_ERRNO,
  MEMCACHED_FAIL_UNIX_SOCKET,
  MEMCACHED_NOT_SUPPORTED,
  MEMCACHED_NO_KEY_PROVIDED,
  MEMCACHED_FETCH_NOTFINISHED,
  MEMCACHED_TIMEOUT,
  MEMCACHED_BUFFERED,
  MEMCACHED_BAD_KEY_PROVIDED,
  MEMCACHED_INVALID_HOST_PROTOCOL,
  MEMCACHED_SERVER_MARKED_DEAD,
  MEMCACHED_UNKNOWN_STAT_KEY,
  MEMCACHED_E2BIG,
  MEMCACHED_INVALID_ARGUMENTS,
  MEMCACHED_KEY_TOO_BIG,
  MEMCACHED_AUTH_PROBLEM,
  MEMCACHED_AUTH_FAILURE,
  MEMCACHED_AUTH_CONTINUE,
  MEMCACHED_PARSE_ERROR,
  MEMCACHED_PARSE_USER_ERROR,
  MEMCACHED_DEPRECATED,
  MEMCACHED_IN_PROGRESS,
  MEMCACHED_SERVER_TEMPORARILY_DISABLED,
  MEMCACHED_SERVER_MEMORY_ALLOCATION_FAILURE,
  MEMCACHED_MAXIMUM_RETURN,
  MEMCACHED_CONNECTION_SOCKET_CREATE_FAILURE = MEMCACHED_ERROR
} memcached_return_t;

typedef enum memcached_behavior_t {
  MEMCACHED_BEHAVIOR_NO_BLOCK,
  MEMCACHED_BEHAVIOR_TCP_NODELAY,
  MEMCACHED_BEHAVIOR_HASH,
  MEMCACHED_BEHAVIOR_KETAMA,
  MEMCACHED_BEHAVIOR_SOCKET_SEND_SIZE,
  MEMCACHED_BEHAVIOR_SOCKET_RECV_SIZE,
  MEMCACHED_BEHAVIOR_CACHE_LOOKUPS,
  MEMCACHED_BEHAVIOR_SUPPORT_CAS,
  MEMCACHED_BEHAVIOR_POLL_TIMEOUT,
  MEMCACHED_BEHAVIOR_DISTRIBUTION,
  MEMCACHED_BEHAVIOR_BUFFER_REQUESTS,
  MEMCACHED_BEHAVIOR_USER_DATA,
  MEMCACHED_BEHAVIOR_SORT_HOSTS,
  MEMCACHED_BEHAVIOR_VERIFY_KEY,
  MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT,
  MEMCACHED_BEHAVIOR_RETRY_TIMEOUT,
  MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED,
  MEMCACHED_BEHAVIOR_KETAMA_HASH,
  MEMCACHED_BEHAVIOR_BINARY_PROTOCOL,
  MEMCACHED_BEHAVIOR_SND_TIMEOUT,
  MEMCACHED_BEHAVIOR_RCV_TIMEOUT,
  MEMCACHED_BEHAVIOR_SERVER_FAILURE_LIMIT,
  MEMCACHED_BEHAVIOR_IO_MSG_WATERMARK,
  MEMCACHED_BEHAVIOR_IO_BYTES_WATERMARK,
  MEMCACHED_BEHAVIOR_IO_KEY_PREFETCH,
  MEMCACHED_BEHAVIOR_HASH_WITH_PREFIX_KEY,
  MEMCACHED_BEHAVIOR_NOREPLY,
  MEMCACHED_BEHAVIOR_USE_UDP,
  MEMCACHED_BEHAVIOR_AUTO_EJECT_HOSTS,
  MEMCACHED_BEHAVIOR_NUMBER_OF_REPLICAS,
  MEMCACHED_BEHAVIOR_RANDOMIZE_REPLICA_READ,
  MEMCACHED_BEHAVIOR_CORK,
  MEMCACHED_BEHAVIOR_TCP_KEEPALIVE,
  MEMCACHED_BEHAVIOR_TCP_KEEPIDLE,
  MEMCACHED_BEHAVIOR_LOAD_FROM_FILE,
  MEMCACHED_BEHAVIOR_REMOVE_FAILED_SERVERS,
  MEMCACHED_BEHAVIOR_DEAD_TIMEOUT,
  MEMCACHED_BEHAVIOR_SERVER_TIMEOUT_LIMIT,
  MEMCACHED_BEHAVIOR_MAX
} memcached_behavior_t;

typedef enum memcached_callback_t {
  MEMCACHED_CALLBACK_PREFIX_KEY = 0,
  MEMCACHED_CALLBACK_USER_DATA = 1,
  MEMCACHED_CALLBACK_CLEANUP_FUNCTION = 2,
  MEMCACHED_CALLBACK_CLONE_FUNCTION = 3,
  MEMCACHED_CALLBACK_GET_FAILURE = 7,
  MEMCACHED_CALLBACK_DELETE_TRIGGER = 8,
  MEMCACHED_CALLBACK_MAX,
  MEMCACHED_CALLBACK_NAMESPACE = MEMCACHED_CALLBACK_PREFIX_KEY
} memcached_callback_t;

typedef enum memcached_connection_t {
  MEMCACHED_CONNECTION_TCP,
  MEMCACHED_CONNECTION_UDP,
  MEMCACHED_CONNECTION_UNIX_SOCKET
} memcached_connection_t;

typedef enum memcached_hash_t {
  MEMCACHED_HASH_DEFAULT,
  MEMCACHED_HASH_MD5,
  MEMCACHED_HASH_CRC,
  MEMCACHED_HASH_FNV1_64,
  MEMCACHED_HASH_FNV1A_64,
  MEMCACHED_HASH_FNV1_32,
  MEMCACHED_HASH_FNV1A_32,
  MEMCACHED_HASH_HSIEH,
  MEMCACHED_HASH_MURMUR,
  MEMCACHED_HASH_JENKINS,
  MEMCACHED_HASH_MURMUR3,
  MEMCACHED_HASH_CUSTOM,
  MEMCACHED_HASH_MAX
} memcached_hash_t;

typedef enum memcached_server_distribution_t {
  MEMCACHED_DISTRIBUTION_MODULA,
  MEMCACHED_DISTRIBUTION_CONSISTENT,
  MEMCACHED_DISTRIBUTION_CONSISTENT_KETAMA,
  MEMCACHED_DISTRIBUTION_RANDOM,
  MEMCACHED_DISTRIBUTION_CONSISTENT_KETAMA_SPY,
  MEMCACHED_DISTRIBUTION_CONSISTENT_WEIGHTED,
  MEMCACHED_DISTRIBUTION_VIRTUAL_BUCKET,
  MEMCACHED_DISTRIBUTION_CONSISTENT_MAX
} memcached_server_distribution_t;

enum memcached_server_state_t {
  MEMCACHED_SERVER_STATE_NEW,
  MEMCACHED_SERVER_STATE_ADDRINFO,
  MEMCACHED_SERVER_STATE_IN_PROGRESS,
  MEMCACHED_SERVER_STATE_CONNECTED,
  MEMCACHED_SERVER_STATE_IN_TIMEOUT,
  MEMCACHED_SERVER_STATE_DISABLED
};

typedef struct memcached_st memcached_st;
typedef struct memcached_result_st memcached_result_st;
typedef struct memcached_stat_st memcached_stat_st;
typedef struct memcached_analysis_st memcached_analysis_st;
typedef struct memcached_server_st memcached_server_st;
typedef struct memcached_server_st *memcached_server_list_st;
typedef struct memcached_instance_st memcached_instance_st;
typedef struct memcached_string_st memcached_string_st;
typedef struct memcached_callback_st memcached_callback_st;
typedef struct memcached_error_t memcached_error_t;
typedef struct memcached_array_st memcached_array_st;

typedef void (*memcached_free_fn)(const memcached_st *memc, void *mem, void *context);
typedef void *(*memcached_malloc_fn)(const memcached_st *memc, const size_t size, void *context);
typedef void *(*memcached_realloc_fn)(const memcached_st *memc, void *mem, const size_t size, void *context);
typedef void *(*memcached_calloc_fn)(const memcached_st *memc, size_t nelem, const size_t elsize, void *context);
typedef memcached_return_t (*memcached_clone_fn)(memcached_st *destination, const memcached_st *source);
typedef memcached_return_t (*memcached_cleanup_fn)(const memcached_st *memc);
typedef memcached_return_t (*memcached_trigger_key_fn)(const memcached_st *memc, const char *key, size_t key_length,
                                                       memcached_result_st *result);
typedef memcached_return_t (*memcached_trigger_delete_key_fn)(const memcached_st *memc, const char *key,
                                                              size_t key_length);
typedef memcached_return_t (*memcached_dump_fn)(const memcached_st *memc, const char *key, size_t key_length,
                                                void *context);
typedef memcached_return_t (*memcached_execute_fn)(const memcached_st *memc, memcached_result_st *result,
                                                   void *context);
typedef memcached_return_t (*memcached_server_fn)(const memcached_st *memc, const memcached_instance_st *server,
                                                  void *context);
typedef memcached_return_t (*memcached_stat_fn)(const memcached_instance_st *server, const char *key,
                                                size_t key_length, const char *value, size_t value_length,
                                                void *context);

/* The names of libmemcached before 1.0. */
typedef memcached_return_t memcached_return;
typedef memcached_server_distribution_t memcached_server_distribution;
typedef memcached_behavior_t memcached_behavior;
typedef memcached_callback_t memcached_callback;
typedef memcached_hash_t memcached_hash;
typedef memcached_connection_t memcached_connection;
typedef memcached_clone_fn memcached_clone_func;
typedef memcached_cleanup_fn memcached_cleanup_func;
typedef memcached_execute_fn memcached_execute_function;
typedef memcached_server_fn memcached_server_function;
typedef memcached_trigger_key_fn memcached_trigger_key;
typedef memcached_trigger_delete_key_fn memcached_trigger_delete_key;

struct memcached_callback_st {
  memcached_execute_fn *callback;
  void *context;
  uint32_t number_of_callback;
};

struct memcached_string_st {
  char *end;
  char *string;
  size_t current_size;
  struct memcached_st *root;
  struct {
    bool is_allocated : 1;
    bool is_initialized : 1;
  } options;
};

struct memcached_result_st {
  uint32_t item_flags;
  time_t item_expiration;
  size_t key_length;
  uint64_t item_cas;
  struct memcached_st *root;
  memcached_string_st value;
  uint64_t numeric_value;
  uint64_t count;
  char item_key[MEMCACHED_MAX_KEY];
  struct {
    bool is_allocated : 1;
    bool is_initialized : 1;
  } options;
};

struct memcached_allocator_t {
  memcached_calloc_fn calloc;
  memcached_free_fn free;
  memcached_malloc_fn malloc;
  memcached_realloc_fn realloc;
  void *context;
};

/* <sasl/sasl.h> declares it. */
struct sasl_callback;

struct memcached_sasl_st {
  struct sasl_callback *callbacks;
  bool is_allocated;
};

struct memcached_st {
  struct {
    bool is_purging : 1;
    bool is_processing_input : 1;
    bool is_time_for_rebuild : 1;
    bool is_parsing : 1;
  } state;
  struct {
    bool auto_eject_hosts : 1;
    bool binary_protocol : 1;
    bool buffer_requests : 1;
    bool hash_with_namespace : 1;
    bool no_block : 1;
    bool reply : 1;
    bool randomize_replica_read : 1;
    bool support_cas : 1;
    bool tcp_nodelay : 1;
    bool use_sort_hosts : 1;
    bool use_udp : 1;
    bool verify_key : 1;
    bool tcp_keepalive : 1;
    bool is_aes : 1;
    bool is_fetching_version : 1;
    bool not_used : 1;
  } flags;
  memcached_server_distribution_t distribution;
  hashkit_st hashkit;
  struct {
    unsigned int version;
  } server_info;
  uint32_t number_of_hosts;
  memcached_instance_st *servers;
  memcached_instance_st *last_disconnected_server;
  int32_t snd_timeout;
  int32_t rcv_timeout;
  uint32_t server_failure_limit;
  uint32_t server_timeout_limit;
  uint32_t io_msg_watermark;
  uint32_t io_bytes_watermark;
  uint32_t io_key_prefetch;
  uint32_t tcp_keepidle;
  int32_t poll_timeout;
  int32_t connect_timeout;
  int32_t retry_timeout;
  int32_t dead_timeout;
  int send_size;
  int recv_size;
  void *user_data;
  uint64_t query_id;
  uint32_t number_of_replicas;
  memcached_result_st result;
  struct {
    bool weighted_;
    uint32_t continuum_count;
    uint32_t continuum_points_counter;
    time_t next_distribution_rebuild;
    struct memcached_continuum_item_st *continuum; /* the library's own state */
  } ketama;
  struct memcached_virtual_bucket_t *virtual_bucket;
  struct memcached_allocator_t allocators;
  memcached_clone_fn on_clone;
  memcached_cleanup_fn on_cleanup;
  memcached_trigger_key_fn get_key_failure;
  memcached_trigger_delete_key_fn delete_trigger;
  memcached_callback_st *callbacks;
  struct memcached_sasl_st sasl;
  struct memcached_error_t *error_messages;
  struct memcached_array_st *_namespace;
  struct {
    uint32_t initial_pool_size;
    uint32_t max_pool_size;
    int32_t version;
    struct memcached_array_st *filename;
  } configure;
  struct {
    bool is_allocated : 1;
  } options;
};

struct memcached_server_st {
  struct {
    bool is_allocated : 1;
    bool is_initialized : 1;
    bool is_shutting_down : 1;
    bool is_dead : 1;
  } options;
  uint32_t number_of_hosts;
  uint32_t cursor_active;
  in_port_t port;
  uint32_t io_bytes_sent;
  uint32_t request_id;
  uint32_t server_failure_counter;
  uint64_t server_failure_counter_query_id;
  uint32_t server_timeout_counter;
  uint64_t server_timeout_counter_query_id;
  uint32_t weight;
  uint32_t version;
  enum memcached_server_state_t state;
  struct {
    uint32_t read;
    uint32_t write;
    uint32_t timeouts;
    size_t _bytes_read;
  } io_wait_count;
  uint8_t major_version;
  uint8_t micro_version;
  uint8_t minor_version;
  memcached_connection_t type;
  time_t next_retry;
  struct memcached_st *root;
  uint64_t limit_maxbytes;
  struct memcached_error_t *error_messages;
  char hostname[MEMCACHED_NI_MAXHOST];
};

struct memcached_stat_st {
  unsigned long connection_structures;
  unsigned long curr_connections;
  unsigned long curr_items;
  pid_t pid;
  unsigned long pointer_size;
  unsigned long rusage_system_microseconds;
  unsigned long rusage_system_seconds;
  unsigned long rusage_user_microseconds;
  unsigned long rusage_user_seconds;
  unsigned long threads;
  unsigned long time;
  unsigned long total_connections;
  unsigned long total_items;
  unsigned long uptime;
  unsigned long long bytes;
  unsigned long long bytes_read;
  unsigned long long bytes_written;
  unsigned long long cmd_get;
  unsigned long long cmd_set;
  unsigned long long evictions;
  unsigned long long get_hits;
  unsigned long long get_misses;
  unsigned long long limit_maxbytes;
  char version[MEMCACHED_VERSION_STRING_LENGTH];
  void *__future;
  memcached_st *root;
};

struct memcached_analysis_st {
  memcached_st *root;
  uint32_t average_item_size;
  uint32_t longest_uptime;
  uint32_t least_free_server;
  uint32_t most_consumed_server;
  uint32_t oldest_server;
  double pool_hit_ratio;
  uint64_t most_used_bytes;
  uint64_t least_remaining_bytes;
};

static inline bool memcached_success(memcached_return_t rc) {
  return rc == MEMCACHED_BUFFERED || rc == MEMCACHED_DELETED || rc == MEMCACHED_END || rc == MEMCACHED_ITEM
      || rc == MEMCACHED_STAT || rc == MEMCACHED_STORED || rc == MEMCACHED_SUCCESS || rc == MEMCACHED_VALUE;
}

static inline bool memcached_failed(memcached_return_t rc) {
  return !memcached_success(rc) && rc != MEMCACHED_AUTH_CONTINUE;
}

static inline bool memcached_fatal(memcached_return_t rc) {
  return memcached_failed(rc) && rc != MEMCACHED_CLIENT_ERROR && rc != MEMCACHED_DATA_EXISTS && rc != MEMCACHED_E2BIG
      && rc != MEMCACHED_ERROR && rc != MEMCACHED_NOTFOUND && rc != MEMCACHED_NOTSTORED
      && rc != MEMCACHED_SERVER_MEMORY_ALLOCATION_FAILURE;
}

#define memcached_continue(rc) ((rc) == MEMCACHED_IN_PROGRESS)

/* Clients. */
LIBMEMCACHED_API memcached_st *memcached_create(memcached_st *memc);
LIBMEMCACHED_API memcached_st *memcached(const char *string, size_t string_length);
LIBMEMCACHED_API void memcached_free(memcached_st *memc);
LIBMEMCACHED_API memcached_return_t memcached_reset(memcached_st *memc);
LIBMEMCACHED_API memcached_st *memcached_clone(memcached_st *clone, const memcached_st *memc);
LIBMEMCACHED_API memcached_return_t memcached_push(memcached_st *destination, const memcached_st *source);
LIBMEMCACHED_API void memcached_quit(memcached_st *memc);
LIBMEMCACHED_API memcached_return_t memcached_flush_buffers(memcached_st *memc);
LIBMEMCACHED_API void *memcached_get_user_data(const memcached_st *memc);
LIBMEMCACHED_API void *memcached_set_user_data(memcached_st *memc, void *data);
LIBMEMCACHED_API uint64_t memcached_query_id(const memcached_st *memc);
LIBMEMCACHED_API const char *memcached_lib_version(void);
LIBMEMCACHED_API memcached_return_t libmemcached_check_configuration(const char *option_string, size_t length,
    char *error_buffer, size_t error_buffer_size);
LIBMEMCACHED_API memcached_return_t memcached_set_encoding_key(memcached_st *memc, const char *str, size_t length);

/* Settings. */
LIBMEMCACHED_API memcached_return_t memcached_behavior_set(memcached_st *memc, const memcached_behavior_t flag,
    uint64_t data);
LIBMEMCACHED_API uint64_t memcached_behavior_get(memcached_st *memc, const memcached_behavior_t flag);
LIBMEMCACHED_API memcached_return_t memcached_behavior_set_distribution(memcached_st *memc,
    memcached_server_distribution_t type);
LIBMEMCACHED_API memcached_server_distribution_t memcached_behavior_get_distribution(memcached_st *memc);
LIBMEMCACHED_API memcached_return_t memcached_behavior_set_key_hash(memcached_st *memc, memcached_hash_t type);
LIBMEMCACHED_API memcached_hash_t memcached_behavior_get_key_hash(memcached_st *memc);
LIBMEMCACHED_API memcached_return_t memcached_behavior_set_distribution_hash(memcached_st *memc,
    memcached_hash_t type);
LIBMEMCACHED_API memcached_hash_t memcached_behavior_get_distribution_hash(memcached_st *memc);
LIBMEMCACHED_API const char *libmemcached_string_behavior(const memcached_behavior_t flag);
LIBMEMCACHED_API const char *libmemcached_string_distribution(const memcached_server_distribution_t flag);
LIBMEMCACHED_API memcached_return_t memcached_bucket_set(memcached_st *memc, const uint32_t *host_map,
    const uint32_t *forward_map, const uint32_t buckets, const uint32_t replicas);
LIBMEMCACHED_API memcached_return_t memcached_callback_set(memcached_st *memc, const memcached_callback_t flag,
    const void *data);
LIBMEMCACHED_API void *memcached_callback_get(memcached_st *memc, const memcached_callback_t flag,
    memcached_return_t *error);
LIBMEMCACHED_API memcached_return_t memcached_set_memory_allocators(memcached_st *memc,
    memcached_malloc_fn mem_malloc, memcached_free_fn mem_free, memcached_realloc_fn mem_realloc,
    memcached_calloc_fn mem_calloc, void *context);
LIBMEMCACHED_API void memcached_get_memory_allocators(const memcached_st *memc, memcached_malloc_fn *mem_malloc,
    memcached_free_fn *mem_free, memcached_realloc_fn *mem_realloc, memcached_calloc_fn *mem_calloc);
LIBMEMCACHED_API void *memcached_get_memory_allocators_context(const memcached_st *memc);

/* Logins. */
LIBMEMCACHED_API memcached_return_t memcached_set_sasl_auth_data(memcached_st *memc, const char *username,
    const char *password);
LIBMEMCACHED_API memcached_return_t memcached_destroy_sasl_auth_data(memcached_st *memc);
LIBMEMCACHED_API void memcached_set_sasl_callbacks(memcached_st *memc, const struct sasl_callback *callbacks);
LIBMEMCACHED_API struct sasl_callback *memcached_get_sasl_callbacks(memcached_st *memc);

/* Servers. */
LIBMEMCACHED_API memcached_return_t memcached_server_add(memcached_st *memc, const char *hostname, in_port_t port);
LIBMEMCACHED_API memcached_return_t memcached_server_add_with_weight(memcached_st *memc, const char *hostname,
    in_port_t port, uint32_t weight);
LIBMEMCACHED_API memcached_return_t memcached_server_add_udp(memcached_st *memc, const char *hostname,
    in_port_t port);
LIBMEMCACHED_API memcached_return_t memcached_server_add_udp_with_weight(memcached_st *memc, const char *hostname,
    in_port_t port, uint32_t weight);
LIBMEMCACHED_API memcached_return_t memcached_server_add_unix_socket(memcached_st *memc, const char *filename);
LIBMEMCACHED_API memcached_return_t memcached_server_add_unix_socket_with_weight(memcached_st *memc,
    const char *filename, uint32_t weight);
LIBMEMCACHED_API void memcached_servers_reset(memcached_st *memc);
LIBMEMCACHED_API uint32_t memcached_server_count(const memcached_st *memc);
LIBMEMCACHED_API const memcached_instance_st *memcached_server_instance_by_position(const memcached_st *memc,
    uint32_t position);
LIBMEMCACHED_API const memcached_instance_st *memcached_server_by_key(memcached_st *memc, const char *key,
    size_t key_length, memcached_return_t *error);
LIBMEMCACHED_API const memcached_instance_st *memcached_server_get_last_disconnect(const memcached_st *memc);
LIBMEMCACHED_API void memcached_reset_last_disconnected_server(memcached_st *memc);
LIBMEMCACHED_API memcached_return_t memcached_server_cursor(const memcached_st *memc,
    const memcached_server_fn *callback, void *context, uint32_t number_of_callbacks);
LIBMEMCACHED_API const char *memcached_server_name(const memcached_instance_st *server);
LIBMEMCACHED_API in_port_t memcached_server_port(const memcached_instance_st *server);
LIBMEMCACHED_API in_port_t memcached_server_srcport(const memcached_instance_st *server);
LIBMEMCACHED_API const char *memcached_server_type(const memcached_instance_st *server);
LIBMEMCACHED_API uint32_t memcached_server_response_count(const memcached_instance_st *server);
LIBMEMCACHED_API uint8_t memcached_server_major_version(const memcached_instance_st *server);
LIBMEMCACHED_API uint8_t memcached_server_minor_version(const memcached_instance_st *server);
LIBMEMCACHED_API uint8_t memcached_server_micro_version(const memcached_instance_st *server);
LIBMEMCACHED_API void memcached_instance_next_retry(const memcached_instance_st *server, const time_t absolute_time);

/* Lists of servers. */
LIBMEMCACHED_API memcached_server_list_st memcached_servers_parse(const char *server_strings);
LIBMEMCACHED_API memcached_server_list_st memcached_server_list_append(memcached_server_list_st list,
    const char *hostname, in_port_t port, memcached_return_t *error);
LIBMEMCACHED_API memcached_server_list_st memcached_server_list_append_with_weight(memcached_server_list_st list,
    const char *hostname, in_port_t port, uint32_t weight, memcached_return_t *error);
LIBMEMCACHED_API uint32_t memcached_server_list_count(const memcached_server_list_st list);
LIBMEMCACHED_API void memcached_server_list_free(memcached_server_list_st list);
LIBMEMCACHED_API memcached_return_t memcached_server_push(memcached_st *memc, const memcached_server_list_st list);
LIBMEMCACHED_API void memcached_server_free(memcached_server_st *server);
LIBMEMCACHED_API void memcached_server_error_reset(memcached_server_st *server);

/* Changes. */
LIBMEMCACHED_API memcached_return_t memcached_set(memcached_st *memc, const char *key, size_t key_length,
    const char *value, size_t value_length, time_t expiration, uint32_t flags);
LIBMEMCACHED_API memcached_return_t memcached_set_by_key(memcached_st *memc, const char *group_key,
    size_t group_key_length, const char *key, size_t key_length, const char *value, size_t value_length,
    time_t expiration, uint32_t flags);
LIBMEMCACHED_API memcached_return_t memcached_add(memcached_st *memc, const char *key, size_t key_length,
    const char *value, size_t value_length, time_t expiration, uint32_t flags);
LIBMEMCACHED_API memcached_return_t memcached_add_by_key(memcached_st *memc, const char *group_key,
    size_t group_key_length, const char *key, size_t key_length, const char *value, size_t value_length,
    time_t expiration, uint32_t flags);
LIBMEMCACHED_API memcached_return_t memcached_replace(memcached_st *memc, const char *key, size_t key_length,
    const char *value, size_t value_length, time_t expiration, uint32_t flags);
LIBMEMCACHED_API memcached_return_t memcached_replace_by_key(memcached_st *memc, const char *group_key,
    size_t group_key_length, const char *key, size_t key_length, const char *value, size_t value_length,
    time_t expiration, uint32_t flags);
LIBMEMCACHED_API memcached_return_t memcached_append(memcached_st *memc, const char *key, size_t key_length,
    const char *value, size_t value_length, time_t expiration, uint32_t flags);
LIBMEMCACHED_API memcached_return_t memcached_append_by_key(memcached_st *memc, const char *group_key,
    size_t group_key_length, const char *key, size_t key_length, const char *value, size_t value_length,
    time_t expiration, uint32_t flags);
LIBMEMCACHED_API memcached_return_t memcached_prepend(memcached_st *memc, const char *key, size_t key_length,
    const char *value, size_t value_length, time_t expiration, uint32_t flags);
LIBMEMCACHED_API memcached_return_t memcached_prepend_by_key(memcached_st *memc, const char *group_key,
    size_t group_key_length, const char *key, size_t key_length, const char *value, size_t value_length,
    time_t expiration, uint32_t flags);
LIBMEMCACHED_API memcached_return_t memcached_cas(memcached_st *memc, const char *key, size_t key_length,
    const char *value, size_t value_length, time_t expiration, uint32_t flags, uint64_t cas);
LIBMEMCACHED_API memcached_return_t memcached_cas_by_key(memcached_st *memc, const char *group_key,
    size_t group_key_length, const char *key, size_t key_length, const char *value, size_t value_length,
    time_t expiration, uint32_t flags, uint64_t cas);
LIBMEMCACHED_API memcached_return_t memcached_delete(memcached_st *memc, const char *key, size_t key_length,
    time_t expiration);
LIBMEMCACHED_API memcached_return_t memcached_delete_by_key(memcached_st *memc, const char *group_key,
    size_t group_key_length, const char *key, size_t key_length, time_t expiration);
LIBMEMCACHED_API memcached_return_t memcached_touch(memcached_st *memc, const char *key, size_t key_length,
    time_t expiration);
LIBMEMCACHED_API memcached_return_t memcached_touch_by_key(memcached_st *memc, const char *group_key,
    size_t group_key_length, const char *key, size_t key_length, time_t expiration);
LIBMEMCACHED_API memcached_return_t memcached_increment(memcached_st *memc, const char *key, size_t key_length,
    uint32_t offset, uint64_t *value);
LIBMEMCACHED_API memcached_return_t memcached_increment_by_key(memcached_st *memc, const char *group_key,
    size_t group_key_length, const char *key, size_t key_length, uint64_t offset, uint64_t *value);
LIBMEMCACHED_API memcached_return_t memcached_increment_with_initial(memcached_st *memc, const char *key,
    size_t key_length, uint64_t offset, uint64_t initial, time_t expiration, uint64_t *value);
LIBMEMCACHED_API memcached_return_t memcached_increment_with_initial_by_key(memcached_st *memc, const char *group_key,
    size_t group_key_length, const char *key, size_t key_length, uint64_t offset, uint64_t initial, time_t expiration,
    uint64_t *value);
LIBMEMCACHED_API memcached_return_t memcached_decrement(memcached_st *memc, const char *key, size_t key_length,
    uint32_t offset, uint64_t *value);
LIBMEMCACHED_API memcached_return_t memcached_decrement_by_key(memcached_st *memc, const char *group_key,
    size_t group_key_length, const char *key, size_t key_length, uint64_t offset, uint64_t *value);
LIBMEMCACHED_API memcached_return_t memcached_decrement_with_initial(memcached_st *memc, const char *key,
    size_t key_length, uint64_t offset, uint64_t initial, time_t expiration, uint64_t *value);
LIBMEMCACHED_API memcached_return_t memcached_decrement_with_initial_by_key(memcached_st *memc, const char *group_key,
    size_t group_key_length, const char *key, size_t key_length, uint64_t offset, uint64_t initial, time_t expiration,
    uint64_t *value);
LIBMEMCACHED_API memcached_return_t memcached_flush(memcached_st *memc, time_t expiration);

/* Requests for items. */
LIBMEMCACHED_API char *memcached_get(memcached_st *memc, const char *key, size_t key_length, size_t *value_length,
    uint32_t *flags, memcached_return_t *error);
LIBMEMCACHED_API char *memcached_get_by_key(memcached_st *memc, const char *group_key, size_t group_key_length,
    const char *key, size_t key_length, size_t *value_length, uint32_t *flags, memcached_return_t *error);
LIBMEMCACHED_API memcached_return_t memcached_mget(memcached_st *memc, const char *const *keys,
    const size_t *key_length, size_t number_of_keys);
LIBMEMCACHED_API memcached_return_t memcached_mget_by_key(memcached_st *memc, const char *group_key,
    size_t group_key_length, const char *const *keys, const size_t *key_length, size_t number_of_keys);
LIBMEMCACHED_API memcached_return_t memcached_mget_execute(memcached_st *memc, const char *const *keys,
    const size_t *key_length, size_t number_of_keys, memcached_execute_fn *callback, void *context,
    uint32_t number_of_callbacks);
LIBMEMCACHED_API memcached_return_t memcached_mget_execute_by_key(memcached_st *memc, const char *group_key,
    size_t group_key_length, const char *const *keys, const size_t *key_length, size_t number_of_keys,
    memcached_execute_fn *callback, void *context, uint32_t number_of_callbacks);
LIBMEMCACHED_API char *memcached_fetch(memcached_st *memc, char *key, size_t *key_length, size_t *value_length,
    uint32_t *flags, memcached_return_t *error);
LIBMEMCACHED_API memcached_result_st *memcached_fetch_result(memcached_st *memc, memcached_result_st *result,
    memcached_return_t *error);
LIBMEMCACHED_API memcached_return_t memcached_fetch_execute(memcached_st *memc, memcached_execute_fn *callback,
    void *context, uint32_t number_of_callbacks);
LIBMEMCACHED_API memcached_return_t memcached_exist(memcached_st *memc, const char *key, size_t key_length);
LIBMEMCACHED_API memcached_return_t memcached_exist_by_key(memcached_st *memc, const char *group_key,
    size_t group_key_length, const char *key, size_t key_length);

/* Results. */
LIBMEMCACHED_API memcached_result_st *memcached_result_create(const memcached_st *memc, memcached_result_st *result);
LIBMEMCACHED_API void memcached_result_free(memcached_result_st *result);
LIBMEMCACHED_API void memcached_result_reset(memcached_result_st *result);
LIBMEMCACHED_API const char *memcached_result_key_value(const memcached_result_st *result);
LIBMEMCACHED_API size_t memcached_result_key_length(const memcached_result_st *result);
LIBMEMCACHED_API const char *memcached_result_value(const memcached_result_st *result);
LIBMEMCACHED_API char *memcached_result_take_value(memcached_result_st *result);
LIBMEMCACHED_API size_t memcached_result_length(const memcached_result_st *result);
LIBMEMCACHED_API uint32_t memcached_result_flags(const memcached_result_st *result);
LIBMEMCACHED_API uint64_t memcached_result_cas(const memcached_result_st *result);
LIBMEMCACHED_API memcached_return_t memcached_result_set_value(memcached_result_st *result, const char *value,
    size_t length);
LIBMEMCACHED_API void memcached_result_set_flags(memcached_result_st *result, uint32_t flags);
LIBMEMCACHED_API void memcached_result_set_expiration(memcached_result_st *result, time_t expiration);

/* Statistics, and what servers tell of themselves. */
LIBMEMCACHED_API memcached_stat_st *memcached_stat(memcached_st *memc, char *args, memcached_return_t *error);
LIBMEMCACHED_API void memcached_stat_free(const memcached_st *memc, memcached_stat_st *stat);
LIBMEMCACHED_API memcached_return_t memcached_stat_servername(memcached_stat_st *stat, char *args,
    const char *hostname, in_port_t port);
LIBMEMCACHED_API char *memcached_stat_get_value(const memcached_st *memc, memcached_stat_st *stat, const char *key,
    memcached_return_t *error);
LIBMEMCACHED_API char **memcached_stat_get_keys(memcached_st *memc, memcached_stat_st *stat,
    memcached_return_t *error);
LIBMEMCACHED_API memcached_return_t memcached_stat_execute(memcached_st *memc, const char *args,
    memcached_stat_fn func, void *context);
LIBMEMCACHED_API memcached_analysis_st *memcached_analyze(memcached_st *memc, memcached_stat_st *stat,
    memcached_return_t *error);
LIBMEMCACHED_API void memcached_analyze_free(memcached_analysis_st *analysis);
LIBMEMCACHED_API memcached_return_t memcached_version(memcached_st *memc);
LIBMEMCACHED_API memcached_return_t memcached_verbosity(memcached_st *memc, uint32_t verbosity);
LIBMEMCACHED_API memcached_return_t memcached_dump(memcached_st *memc, memcached_dump_fn *function, void *context,
    uint32_t number_of_callbacks);

/* Errors. */
LIBMEMCACHED_API const char *memcached_strerror(const memcached_st *memc, memcached_return_t rc);
LIBMEMCACHED_API const char *memcached_error(const memcached_st *memc);
LIBMEMCACHED_API const char *memcached_last_error_message(const memcached_st *memc);
LIBMEMCACHED_API memcached_return_t memcached_last_error(const memcached_st *memc);
LIBMEMCACHED_API int memcached_last_error_errno(const memcached_st *memc);
LIBMEMCACHED_API void memcached_error_print(const memcached_st *memc);
LIBMEMCACHED_API const char *memcached_server_error(const memcached_instance_st *server);
LIBMEMCACHED_API memcached_return_t memcached_server_error_return(const memcached_instance_st *server);

/* Hashes. */
LIBMEMCACHED_API uint32_t memcached_generate_hash_value(const char *key, size_t key_length,
    memcached_hash_t hash_algorithm);
LIBMEMCACHED_API uint32_t memcached_generate_hash(const memcached_st *memc, const char *key, size_t key_length);
LIBMEMCACHED_API const hashkit_st *memcached_get_hashkit(const memcached_st *memc);
LIBMEMCACHED_API memcached_return_t memcached_set_hashkit(memcached_st *memc, hashkit_st *hashk);
LIBMEMCACHED_API void memcached_autoeject(memcached_st *memc);
LIBMEMCACHED_API const char *libmemcached_string_hash(memcached_hash_t type);

#ifdef __cplusplus
}
#endif
