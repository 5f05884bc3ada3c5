// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
)

// coloured decides whether what is written to w has colours: when is auto, always or never. On its own the
// command colours a terminal, unless somebody asked for no colours (NO_COLOR), the output is a log of CI, or the
// terminal knows none.
func coloured(when string, w io.Writer, env lookupEnv) bool {
	switch when {
	case "always":
		return true
	case "never":
		return false
	}
	for _, variable := range []string{"NO_COLOR", "CI"} {
		if value, _ := env(variable); value != "" {
			return false
		}
	}
	if value, _ := env("TERM"); value == "dumb" {
		return false
	}
	return isTerminal(w)
}

// isTerminal reports whether a person sees what is written to w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
