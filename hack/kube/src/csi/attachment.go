package main

import (
	"context"
	"os"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A volume is attached to one node at most; beside its image a file has the name of the node.
func (i images) nodeFile(id string) string {
	return filepath.Join(i.folder, filepath.Base(id)+".node")
}

// node is where a volume is attached, "" if it is not.
func (i images) node(id string) (string, error) {
	found, err := os.ReadFile(i.nodeFile(id))
	if os.IsNotExist(err) {
		err = nil
	}
	return string(found), err
}

func (d *driver) ControllerPublishVolume(
	_ context.Context, request *csi.ControllerPublishVolumeRequest,
) (*csi.ControllerPublishVolumeResponse, error) {
	node, err := d.images.node(request.VolumeId)
	if err != nil {
		return nil, err
	}
	if node != "" && node != request.NodeId {
		return nil, status.Errorf(codes.FailedPrecondition, "%s is attached to node %s", request.VolumeId, node)
	}
	err = os.WriteFile(d.images.nodeFile(request.VolumeId), []byte(request.NodeId), 0o600)
	return &csi.ControllerPublishVolumeResponse{}, err
}

// ControllerUnpublishVolume believes whoever says that the node does not use the volume any more. `claim` does not.
func (d *driver) ControllerUnpublishVolume(
	_ context.Context, request *csi.ControllerUnpublishVolumeRequest,
) (*csi.ControllerUnpublishVolumeResponse, error) {
	node, err := d.images.node(request.VolumeId)
	if err == nil && (request.NodeId == "" || request.NodeId == node) {
		err = os.Remove(d.images.nodeFile(request.VolumeId))
	}
	if os.IsNotExist(err) {
		err = nil
	}
	return &csi.ControllerUnpublishVolumeResponse{}, err
}

// claim lets this node alone mount an image, until the function that it returns is called. It refuses while the image
// has a loop device: then some node has it mounted, whatever anybody believes of that node. All nodes are on one kernel,
// which drops the device with the last mount.
func (d *driver) claim(id string) (release func(), err error) {
	lock, err := os.OpenFile(filepath.Join(d.images.folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	release = func() { _ = lock.Close() }
	if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err == nil {
		err = d.isFree(id)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

func (d *driver) isFree(id string) error {
	node, err := d.images.node(id)
	if err != nil {
		return err
	}
	if node != d.node {
		return status.Errorf(codes.FailedPrecondition, "%s is attached to node %q, and not to %s", id, node, d.node)
	}
	device, err := d.images.device(id)
	if err == nil && device != "" {
		err = status.Errorf(codes.FailedPrecondition, "%s is still mounted, by %s", id, device)
	}
	return err
}
