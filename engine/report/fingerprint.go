// SPDX-License-Identifier: Apache-2.0

package report

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// fingerprints gives each problem a text by which it is known again after the file has changed elsewhere. It is made
// of the code, the file, the line as it may be shown, and what is said without its numbers: lines and places in a list
// move. Problems that agree in all of these are numbered.
func (d *desk) fingerprints() []string {
	seen := map[string]int{}
	prints := make([]string, len(d.Problems))
	for i, p := range d.Problems {
		var text strings.Builder
		s := d.source(p.At.File)
		if line, ok := s.line(p.At.Line); ok {
			for _, c := range visible(line, s.masks[p.At.Line-1], 0, min(len(line), longestWord)) {
				text.WriteString(c.text)
			}
		}
		said := withoutNumbers(p.What)
		key := strings.Join([]string{p.Code, d.path(p.At.File), strings.Join(strings.Fields(text.String()), " "), said}, "\x00")
		seen[key]++
		sum := sha256.Sum256([]byte(key + "\x00" + strconv.Itoa(seen[key])))
		prints[i] = hex.EncodeToString(sum[:16])
	}
	return prints
}

// withoutNumbers puts 0 in place of every number.
func withoutNumbers(text string) string {
	var b strings.Builder
	digit := false
	for _, c := range text {
		before := digit
		digit = c >= '0' && c <= '9'
		switch {
		case !digit:
			b.WriteRune(c)
		case !before:
			b.WriteByte('0')
		}
	}
	return b.String()
}
