// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"testing"

	"example.com/bothy/engine/postgres"
)

// A server has many names of databases and roles, and this machine some of its own.
func TestSameServer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"postgres://alex:one@db.example.com/shop", "host=db.example.com user=sam dbname=other port=5432", true},
		{"postgres://db.example.com/shop", "postgres://db.example.com:5433/shop", false},
		{"postgres://db.example.com/shop", "postgres://test.example.com/shop", false},
		{"postgres://a.example.com,b.example.com/shop", "postgres://b.example.com/shop", true},
		{"postgres://localhost/shop", "postgres://127.0.0.1/test", true},
		{"postgres://[::1]/shop", "host=/var/run/postgresql", true},
		{"host=/run/one", "host=/run/two", false},
		{"host=/run/one", "postgres://localhost", false},
		{"no address", "no address", false},
	} {
		if got := postgres.SameServer(tt.a, tt.b); got != tt.want {
			t.Errorf("SameServer(%q, %q): got %t, want %t", tt.a, tt.b, got, tt.want)
		}
		if got := postgres.SameServer(tt.b, tt.a); got != tt.want {
			t.Errorf("SameServer(%q, %q): got %t, want %t", tt.b, tt.a, got, tt.want)
		}
	}
	if got := postgres.Address("postgres://alex:hunter2@db.example.com:6000/shop"); got != "db.example.com:6000" {
		t.Errorf("Address: got %q, want the host and the port", got)
	}
}
