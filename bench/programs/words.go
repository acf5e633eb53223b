// Counts and sorts words again and again, in two goroutines, so that the garbage collector has work, too.
package main

import (
	"fmt"
	"sort"
	"strings"
)

func words(round uint64) []string {
	seed := round*0x9e3779b97f4a7c15 | 1
	all := make([]string, 0, 20000)
	for range 20000 {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		all = append(all, fmt.Sprintf("word-%x", seed%5000))
	}
	return all
}

func count(round uint64) int {
	counts := map[string]int{}
	for _, word := range words(round) {
		counts[word]++
	}
	order := make([]string, 0, len(counts))
	for word := range counts {
		order = append(order, word)
	}
	sort.Slice(order, func(a, b int) bool {
		if counts[order[a]] != counts[order[b]] {
			return counts[order[a]] > counts[order[b]]
		}
		return order[a] < order[b]
	})
	return len(strings.ToUpper(strings.Join(order, " ")))
}

func work(first uint64, sums chan<- int) {
	for round := first; ; round += 2 {
		sums <- count(round)
	}
}

func main() {
	fmt.Println("ready")
	sums := make(chan int)
	go work(0, sums)
	go work(1, sums)
	total := 0
	for sum := range sums {
		total += sum
	}
}
