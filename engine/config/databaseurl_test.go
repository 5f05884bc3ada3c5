// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

// What PostgreSQL's own tools take is taken.
func TestDatabaseURLTaken(t *testing.T) {
	for _, text := range []string{
		"postgres://", "postgresql://db.example.com", "postgres:///shop", "postgres://app:p%40s$w0rd#?x@db.example.com:5432/shop",
		"postgres://app@one:5432,two:5433/shop", "postgres://app@one,two:/shop?target_session_attrs=any", "postgres://[::1]:5432/shop",
		"postgres://app@one,two:5432/shop?port=5433",
		"postgres://app@h/shop?sslmode=verify-full&connect_timeout=10&application_name=bothy", "postgres://h/?user=a@b", "postgres://u@h/a@b",
		"host=db.example.com", "host = '/run/x' port= 5432 user='a b' password=it\\'s", `password='a\'=b c' sslmode=require`, "host=a,b port=1,2 sslmode=",
		"password=http://x", "host=a user=", "shop.tenant=7",
	} {
		if why, fix := databaseURL(text); why != "" {
			t.Errorf("%s: refused, %s; %s", text, why, fix)
		}
		if near := misspelled(text); near != "" {
			t.Errorf("%s: taken for a slip of %s", text, near)
		}
	}
}

// What no connection can be made of is refused with a reason, and nothing of it is shown.
func TestDatabaseURLRefused(t *testing.T) {
	const secret = "hunter2"
	for text, want := range map[string]string{
		"postgres://app:hunter2@h:99999/db":                     "port",
		"postgres://app:hunter2@h:0/db":                         "port",
		"postgres://app:hunter2@h:hunter2/db":                   "port",
		"postgres://app:hunter2@[::1/db":                        "percent-encode",
		"postgres://app:hunter2@[::1]hunter2/db":                "percent-encode",
		"postgres://app:hunter2@a:1,b:2,c/db?host=hunter2":      "3 ports for 1 hosts",
		"postgres://app:hunt/er2@h/db":                          "percent-encode",
		"postgres://app:hunt@hunter2@h/db":                      "percent-encode",
		"postgres://app:hunter2%@h/db":                          "percent-encode",
		"postgres://app:hunter2@h%/db":                          "percent-encode",
		"postgres://app:hunter2@${HOST:-h}/db":                  "percent-encode",
		"postgres://app:hunter2%00@h/db":                        "U+0000",
		"postgres://app:hunt er2@h/db":                          "%20",
		"postgres://h/db?password=hunter2&sslmode":              "key=value",
		"postgres://h/db?password=hunter2=":                     "key=value",
		"postgres://h/db?password=hunter2&&user=a":              "key=value",
		"postgres://h/db?password=hunter2&sslmode=required":     `did you mean "require"?`,
		"postgres://h/db?password=hunter2&sslmode=hunter2":      "write one of disable, allow",
		"postgres://h/db?password=hunter2&connect_timeout=5s":   "whole seconds",
		"postgres://h/db?target_session_attrs=readwrite":        `did you mean "read-write"?`,
		"host=h password=hunter2 port=abc":                      "port",
		"host=h password=hunter2 port=-1":                       "port",
		"host=a,b,c password=hunter2 port=1,2":                  "2 ports for 3 hosts",
		"host=h password=hunter2 sslmode=requir":                `did you mean "require"?`,
		"host=h password=hunter2 x":                             "key=value",
		"host=h password='hunter2":                              "single quotes",
		"host=h password hunter2 port=5432":                     "key=value",
		"=hunter2":                                              "key=value",
		"$BOTHY_hunter2":                                        "a variable is written ${NAME}",
		"mysql://app:hunter2@h/db":                              "postgres://",
		"hunter2":                                               "neither a URL",
		"host=h sslmode=\x00hunter2":                            "U+0000",
		"postgres://app:hunter2@h/db?channel_binding=requiring": `did you mean "require"?`,
	} {
		why, fix := databaseURL(text)
		if why == "" || !strings.Contains(why+"; "+fix, want) || strings.Contains(why+fix, secret) {
			t.Errorf("%s: got %q, %q, want %q without the password", text, why, fix, want)
		}
	}
}

// A parameter that is one slip away from a known one is told by the known one.
func TestMisspelledParameter(t *testing.T) {
	for text, want := range map[string]string{
		"postgres://h/db?sslmod=require": "sslmode", "host=x pasword=y": "password", "Host=x": "host", "host=x application_nme=y": "application_name",
		"host=x searchpath=y": "search_path", "host=x usr=y": "user", "host=x dbnme=y": "dbname",
		"host=x statement_timeout=5s": "", "host=x zzz=y": "", "host=x": "", "$X": "", "host=x shop.pasword=1": "",
	} {
		if got := misspelled(text); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
