/* For programs that include <mellanox/vma_extra.h>. */
#include "../vireo_extra.h"
