package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// images are the files of volumes and snapshots. The name of a snapshot is NAME@VOLUME.
type images struct{ folder string }

func (i images) make() error {
	return os.MkdirAll(i.folder, 0o700)
}

func (i images) path(id string) string {
	return filepath.Join(i.folder, filepath.Base(id)+".img")
}

// size is the bytes of an image, 0 if there is none.
func (i images) size(id string) (int64, error) {
	found, err := os.Stat(i.path(id))
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return found.Size(), nil
}

// create makes an image of a size, empty or as a copy of another image. It is whole or not there.
func (i images) create(id, source string, bytes int64) error {
	unfinished := i.path(id) + ".part"
	if source == "" {
		if err := os.WriteFile(unfinished, nil, 0o600); err != nil {
			return err
		}
	} else if _, err := run("cp", "--sparse=always", i.path(source), unfinished); err != nil {
		return err
	}
	if err := os.Truncate(unfinished, bytes); err != nil {
		return err
	}
	return os.Rename(unfinished, i.path(id))
}

func (i images) remove(id string) error {
	err := os.Remove(i.path(id))
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// device is the loop device of an image, "" if it has none.
func (i images) device(id string) (string, error) {
	said, err := run("losetup", "--noheadings", "--output", "NAME", "--associated", i.path(id))
	return strings.TrimSpace(said), err
}

// freeze holds up all writes of a mounted image, so that its file is of one moment, until the function that it returns
// is called. An image that is not mounted does not change anyhow.
func (i images) freeze(id string) (thaw func() error, err error) {
	device, err := i.device(id)
	if err != nil {
		return nil, err
	}
	if device == "" {
		return func() error { return nil }, nil
	}
	place, err := run("findmnt", "--noheadings", "--first-only", "--output", "TARGET", "--source", device)
	if err != nil {
		return nil, err
	}
	place = strings.TrimSpace(place)
	if _, err := run("fsfreeze", "--freeze", place); err != nil {
		return nil, err
	}
	return func() error {
		_, err := run("fsfreeze", "--unfreeze", place)
		return err
	}, nil
}

// run is what a program prints; what it complains of is in the error.
func run(program string, arguments ...string) (string, error) {
	said, err := exec.Command(program, arguments...).Output()
	if failed, ok := err.(*exec.ExitError); ok {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(arguments, " "), err, failed.Stderr)
	}
	return string(said), err
}
