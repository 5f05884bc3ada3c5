// SPDX-License-Identifier: Apache-2.0

//go:build unix

package document

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Load looks before it opens. What it says of each thing that is no file stands in the folder of the code.
func TestLoad(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"parcel.yaml": "version: 1\n", "large.yaml": strings.Repeat("#", MaxSize+1)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("parcel.yaml", "link.yaml"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("folder", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"parcel.yaml", "link.yaml"} {
		into, tree, problems := parcels.Load(path, nil)
		if len(problems) > 0 || into.Version != 1 || tree.File() != path {
			t.Errorf("Load(%s): problems %v", path, problems)
		}
	}
	for code, paths := range map[string][]string{
		"not-a-file": {"folder", "pipe", os.DevNull}, "no-file": {"none.yaml", ""}, "unreadable-file": {"parcel.yaml/deep"}, "file-too-large": {"large.yaml"},
	} {
		for _, path := range paths {
			into, tree, problems := parcels.Load(path, nil)
			if into != nil || tree == nil || len(problems) != 1 || problems[0].Code != code || problems[0].At.String() != path+":1:1" {
				t.Errorf("Load(%s): got %v, want %s at 1:1", path, problems, code)
			}
		}
		wantLoad(t, code, paths)
	}
}

// wantLoad compares what is said about some paths with the file of the code.
func wantLoad(t *testing.T, code string, paths []string) {
	t.Helper()
	var got strings.Builder
	for _, path := range paths {
		if path == "" {
			continue // it has no name to show
		}
		_, _, problems := parcels.Load(path, nil)
		got.WriteString(problems.Error() + "\n")
	}
	file := filepath.Join(folder, "testdata", code, "want.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run: go test ./engine/document -run TestLoad -update", err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s: (-want +got)\n%s\nif this is meant, run: go test ./engine/document -run TestLoad -update", code, diff)
	}
}

// A reader that never ends is cut off.
func TestReadFromIsBounded(t *testing.T) {
	file, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, found := readFrom(file)
	if found != nil || len(text) != MaxSize+1 {
		t.Errorf("got %d bytes and %v, want %d", len(text), found, MaxSize+1)
	}
}
