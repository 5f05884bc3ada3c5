// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// The shipped tests pass and leave nothing untested, on a private server as a new user has it.
func TestShippedTests(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	code := run([]string{"test", "--config", "../../consumers.yaml", "--strict"}, os.LookupEnv, nil, &stdout, &stderr)
	if code != exitDone || !strings.HasSuffix(stdout.String(), "coverage: 6 of 6 consumers, 8 of 8 type patterns\n") || stderr.Len() > 0 {
		t.Errorf("exit code %d, want 0\nstdout:\n%s\nstderr:\n%s", code, stdout.String(), stderr.String())
	}
}
