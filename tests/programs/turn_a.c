/* See turn.h. */
#define WORK work_of_a
#include "turn.h"
