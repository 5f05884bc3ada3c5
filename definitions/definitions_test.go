// SPDX-License-Identifier: Apache-2.0

package definitions

import (
	"os"
	"testing"
)

// TestTexts gives the files that their names say, and nobody can write into what the next caller gets.
func TestTexts(t *testing.T) {
	for _, given := range []func() (string, []byte){Round, RoundCases, Restore, RestoreCases} {
		file, text := given()
		want, err := os.ReadFile("../" + file)
		if err != nil {
			t.Fatal(err)
		}
		clear(text)
		if _, again := given(); string(again) != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", file, again, want)
		}
	}
}
