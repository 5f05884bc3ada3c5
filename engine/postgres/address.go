// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"net"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
)

// Address is where the server of a URL listens, for people: host and port, no user and no password. It is empty
// for a text that is no address.
func Address(url string) string {
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		return ""
	}
	return listens(config.Host, config.Port)
}

func listens(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// SameServer reports whether two URLs name one server, whatever the database and the role. Two names of one host
// are not seen as one, but for those of this machine.
func SameServer(a, b string) bool {
	one, err := pgconn.ParseConfig(a)
	if err != nil {
		return false
	}
	other, err := pgconn.ParseConfig(b)
	if err != nil {
		return false
	}
	seen := map[string]bool{}
	for _, at := range addresses(one) {
		seen[at] = true
	}
	for _, at := range addresses(other) {
		if seen[at] {
			return true
		}
	}
	return false
}

// addresses are all that a connection may try.
func addresses(config *pgconn.Config) []string {
	list := []string{listens(here(config.Host), config.Port)}
	for _, f := range config.Fallbacks {
		list = append(list, listens(here(f.Host), f.Port))
	}
	return list
}

// here is a host, or one name for the ways to this machine: its loopback and the usual folders of sockets.
func here(host string) string {
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return "localhost"
	}
	switch host {
	case "/var/run/postgresql", "/run/postgresql", "/tmp":
		return "localhost"
	}
	return host
}
