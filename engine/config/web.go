// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/url"
	"strings"
	"unicode"
)

// adminToken takes what nobody can guess and every client can send in a header. Nothing of it is repeated.
func adminToken(text string) (why, fix string) {
	switch {
	case bareVariable.MatchString(text):
		return "which is no token but a name behind $", variable
	case strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }):
		return "which holds a blank or a character that no header can carry", ""
	case len(text) < 16:
		return "which is too short", ""
	case len(text) > 256:
		return "which is too long", ""
	}
	return "", ""
}

// pageURL takes what a browser opens: a link to javascript: would run on the status page, and a password in it would
// be seen there.
func pageURL(text string) (why, fix string) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "which is not a URL", ""
	case u.Scheme != "http" && u.Scheme != "https":
		return "whose scheme is neither http nor https", ""
	case u.Hostname() == "":
		return "which names no host", ""
	case u.User != nil:
		return "which holds a user", ""
	case strings.ContainsFunc(text, unicode.IsSpace):
		return "which holds a blank", ""
	}
	return "", ""
}
