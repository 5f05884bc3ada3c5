// SPDX-License-Identifier: Apache-2.0

package document

import (
	"slices"
	"strings"
)

// firstBroken is the line after the longest beginning of the file that can be read. A long file is not read
// again and again: first it is narrowed down to the smallest part of its structure that cannot be read
// alone. gaveUp, the line that the parser names, is the answer when that leads nowhere.
func firstBroken(lines []string, gaveUp int) int {
	if line := narrow(lines, 0, len(lines)); line > 0 {
		return line
	}
	return gaveUp
}

// narrow finds the first broken line of a part of a file, or 0. A short part is tried line by line; a long
// one by the keys or entries that it consists of. Each line of a long part is read about once.
func narrow(lines []string, from, to int) int {
	if part := lines[from:to]; len(part) <= 400 && !costly(part) {
		if readable(part) {
			return 0
		}
		for n := range slices.Backward(part) {
			if readable(part[:n]) {
				return from + n + 1
			}
		}
		return 0
	}
	starts := siblings(lines, from, to)
	if len(starts) == 1 { // a key or an entry, and all that belongs to it
		if starts[0]+1 >= to {
			return 0
		}
		return narrow(lines, starts[0]+1, to)
	}
	for i, start := range starts {
		end := to
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		if line := narrow(lines, start, end); line > 0 {
			return line
		}
	}
	return 0
}

// siblings lists the lines of a part that are indented least: its keys, or its entries.
func siblings(lines []string, from, to int) []int {
	var found []int
	least := 1 << 30
	for i := from; i < to; i++ {
		text := strings.TrimLeft(lines[i], " ")
		if text == "" || text[0] == '#' {
			continue
		}
		switch indent := len(lines[i]) - len(text); {
		case indent < least:
			least, found = indent, []int{i}
		case indent == least:
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return []int{to - 1}
	}
	return found
}

// readable reports whether a part can be read alone. An anchor that stands elsewhere is no reason against it.
func readable(part []string) bool {
	_, _, err := parse([]byte(strings.Join(part, "\n")))
	return err == nil || strings.Contains(err.Error(), "unknown anchor") && len(part) > 1
}

// costly reports whether reading every beginning of some lines would take a noticeable time.
func costly(part []string) bool {
	size := 0
	for _, line := range part {
		size += len(line) + 1
	}
	return size*len(part)/2 > 2<<20
}
