// SPDX-License-Identifier: Apache-2.0

package config

import "sync"

// Shown reports whether the value of a key of consumers.yaml can hold no secret, wherever it stands, so that the
// line that holds it may be printed.
func Shown(key string) bool { return shown()(key) }

var shown = sync.OnceValue(grammar.Shown)
