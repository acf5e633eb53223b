// Go that calls C, which works: C runs on another stack than Go.
package main

/*
#cgo CFLAGS: -I${SRCDIR}
#include "target.h"

__attribute__((noinline)) unsigned long work(unsigned long n) {
	for (unsigned long i = 0; i < 3000000; i++)
		n = n * 6364136223846793005 + i;
	return n;
}
*/
import "C"

func main() {
	C.ready()
	for n := C.ulong(1); ; {
		n = C.work(n)
	}
}
