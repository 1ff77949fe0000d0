/* The same as libhashkit-1.0/hashkit.h. */
#pragma once
#include <libhashkit-1.0/hashkit.h>
