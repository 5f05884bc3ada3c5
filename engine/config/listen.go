// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net"
	"strconv"
	"strings"
	"unicode"
)

// listenAddress takes what net.Listen takes, without looking a name up.
func listenAddress(text string) (why, fix string) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		if strings.Contains(text, "://") {
			return "which is a URL and no address", ""
		}
		return "which is not a host and a port", ""
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || port != strconv.FormatUint(n, 10) {
		return "whose port is not a number from 0 to 65535", ""
	}
	if strings.ContainsFunc(host, func(c rune) bool { return unicode.IsSpace(c) || c == '/' || c == '@' }) {
		return "whose host cannot be one", ""
	}
	return "", ""
}
