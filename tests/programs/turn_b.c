/* See turn.h. */
#define WORK work_of_b
#include "turn.h"
