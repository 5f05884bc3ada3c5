// SPDX-License-Identifier: Apache-2.0

package report

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
)

var numbers = regexp.MustCompile(`[0-9]+`)

// fingerprints gives each problem a text by which it is known again after the file has changed elsewhere. It is made
// of the code, the file, the line as it may be shown, and what is said without its numbers: lines and places in a list
// move. Problems that agree in all of these are numbered.
func (d *desk) fingerprints() []string {
	seen := map[string]int{}
	prints := make([]string, len(d.Problems))
	for i, p := range d.Problems {
		text := ""
		if s := d.source(p.At.File); s.Text != nil {
			if line, ok := s.line(p.At.Line); ok {
				for _, c := range visible([]rune(line), s.masks[p.At.Line-1]) {
					text += c.text
				}
			}
		}
		said := numbers.ReplaceAllString(p.What, "0")
		key := strings.Join([]string{p.Code, d.path(p.At.File), strings.Join(strings.Fields(text), " "), said}, "\x00")
		seen[key]++
		sum := sha256.Sum256([]byte(key + "\x00" + strconv.Itoa(seen[key])))
		prints[i] = hex.EncodeToString(sum[:16])
	}
	return prints
}
