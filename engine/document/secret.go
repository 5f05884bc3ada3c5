// SPDX-License-Identifier: Apache-2.0

package document

import "log/slog"

// Secret is a text that must not be seen: a URL that may hold a password. Every way to print it gives
// three stars.
type Secret string

const hidden = "***"

// Reveal is the text itself.
func (s Secret) Reveal() string { return string(s) }

// String hides the text. An empty secret stays empty, so that a print shows whether there is one.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString hides the text from %#v.
func (s Secret) GoString() string { return `document.Secret("` + s.String() + `")` }

// MarshalText hides the text from JSON and other encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue hides the text from log/slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
