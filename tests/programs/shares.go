// Go that computes: three parts of its time in `heavy`, one in `light`. What it computes with is inlined, two calls deep.
package main

import "os"

func rotate(x uint64) uint64 { return x<<13 | x>>51 }

func mix(x uint64) uint64 { return rotate(x^0x9e3779b97f4a7c15) * 6364136223846793005 }

type number interface{ ~uint64 | ~int64 }

//go:noinline
func repeat[T number](x T, times int) T {
	for i := 0; i < times; i++ {
		x = T(mix(uint64(x)))
	}
	return x
}

//go:noinline
func heavy(x uint64, n int) uint64 { return repeat(x, 3*n) + 1 }

//go:noinline
func light(x uint64, n int) uint64 { return repeat(x, n) + 1 }

func main() {
	os.Stdout.WriteString("ready\n")
	for x := uint64(1); ; {
		// No two rounds take equally long, so that they do not keep step with the ticks.
		n := 50000 + int(x>>47)
		x = heavy(x, n)
		x = light(x, n)
	}
}
