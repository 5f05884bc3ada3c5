// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestColoured(t *testing.T) {
	t.Parallel()
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // like a terminal, a device of characters
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct {
		name, when string
		to         io.Writer
		env        map[string]string
		want       bool
	}{
		{"a terminal", "auto", device, nil, true},
		{"a file", "auto", file, nil, false},
		{"memory", "auto", &bytes.Buffer{}, nil, false},
		{"NO_COLOR", "auto", device, map[string]string{"NO_COLOR": "1"}, false},
		{"an empty NO_COLOR", "auto", device, map[string]string{"NO_COLOR": ""}, true},
		{"CI", "auto", device, map[string]string{"CI": "true"}, false},
		{"a dumb terminal", "auto", device, map[string]string{"TERM": "dumb"}, false},
		{"always", "always", file, map[string]string{"NO_COLOR": "1", "CI": "1"}, true},
		{"never", "never", device, nil, false},
	} {
		lookup := func(name string) (string, bool) { value, set := c.env[name]; return value, set }
		if got := coloured(c.when, c.to, lookup); got != c.want {
			t.Errorf("%s: --color %s: got %v, want %v", c.name, c.when, got, c.want)
		}
	}
}
