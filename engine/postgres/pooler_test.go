// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"testing"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

// Cases 36 and 54: a pooler is told from a server, and one that shares sessions from one that does not.
func TestPooled(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	for name, tt := range map[string]struct {
		url  string
		want bool
	}{
		"the server itself":  {db.AppURL, false},
		"by session":         {enginetest.Pooler(t, db.AppURL, true), false},
		"by transaction":     {enginetest.Pooler(t, db.AppURL, false), true},
		"by transaction too": {enginetest.Pooler(t, db.OwnerURL, false), true},
	} {
		got, err := postgres.Pooled(t.Context(), tt.url, 0)
		if err != nil || got != tt.want {
			t.Errorf("%s: got %t, %v, want %t", name, got, err, tt.want)
		}
	}
	if _, err := postgres.Pooled(t.Context(), "postgres://127.0.0.1:1/nothing", 0); err == nil {
		t.Error("no server: got no error, want one")
	}
}
