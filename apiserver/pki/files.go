package pki

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// files is where an authority keeps keys and certificates, by file name.
type files interface {
	// read returns fs.ErrNotExist for what was never written.
	read(name string) ([]byte, error)
	// write replaces a file as a whole.
	write(name string, data []byte) error
	// place says to people where a file is.
	place(name string) string
}

// folder is a directory.
type folder string

func (f folder) place(name string) string             { return filepath.Join(string(f), name) }
func (f folder) read(name string) ([]byte, error)     { return os.ReadFile(f.place(name)) }
func (f folder) write(name string, data []byte) error { return WriteFile(f.place(name), data) }

// memory is nowhere else.
type memory struct{ kept sync.Map }

func (m *memory) place(name string) string { return name + " in memory" }

func (m *memory) read(name string) ([]byte, error) {
	if data, ok := m.kept.Load(name); ok {
		return data.([]byte), nil
	}
	return nil, &fs.PathError{Op: "read", Path: m.place(name), Err: fs.ErrNotExist}
}

func (m *memory) write(name string, data []byte) error {
	m.kept.Store(name, data)
	return nil
}

// WriteFile replaces a file as a whole, readable by its owner alone.
func WriteFile(path string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // made with mode 0600
	if err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Sync()
	}
	if closed := temp.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	return nil
}
