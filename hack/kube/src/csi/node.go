package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

func (d *driver) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, can := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
	} {
		call := &csi.NodeServiceCapability_RPC{Type: can}
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: call},
		})
	}
	return answer, nil
}

// NodeStageVolume mounts the image once for all pods. Its loop device goes with the last mount (the kernel's
// "autoclear"), also when the whole node is ended. nouuid: a volume from a snapshot has the UUID of its source.
func (d *driver) NodeStageVolume(
	_ context.Context, request *csi.NodeStageVolumeRequest,
) (*csi.NodeStageVolumeResponse, error) {
	if request.GetVolumeCapability().GetMount() == nil {
		return nil, status.Error(codes.InvalidArgument, "there are file systems here, and no block devices")
	}
	image, place := d.images.path(request.VolumeId), request.StagingTargetPath
	if isMounted(place) {
		return &csi.NodeStageVolumeResponse{}, nil
	}
	release, err := d.claim(request.VolumeId)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := format(image); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(place, 0o750); err != nil {
		return nil, err
	}
	if _, err := run("mount", "-t", "xfs", "-o", "loop,nouuid", image, place); err != nil {
		return nil, err
	}
	_, err = run("xfs_growfs", place) // a volume may be larger than the snapshot that it was made from
	return &csi.NodeStageVolumeResponse{}, err
}

// format makes a file system unless there is one. blkid's 2 says that it found nothing.
func format(image string) error {
	_, err := run("blkid", "--probe", image)
	var exit *exec.ExitError
	if err == nil || !errors.As(err, &exit) || exit.ExitCode() != 2 {
		return err
	}
	_, err = run("mkfs.xfs", "-q", image)
	return err
}

func (d *driver) NodePublishVolume(
	_ context.Context, request *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	if isMounted(request.TargetPath) {
		return &csi.NodePublishVolumeResponse{}, nil
	}
	if err := os.MkdirAll(request.TargetPath, 0o750); err != nil {
		return nil, err
	}
	options := "bind"
	if request.Readonly {
		options += ",ro"
	}
	_, err := run("mount", "-o", options, request.StagingTargetPath, request.TargetPath)
	return &csi.NodePublishVolumeResponse{}, err
}

func (d *driver) NodeUnpublishVolume(
	_ context.Context, request *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := unmount(request.TargetPath); err != nil {
		return nil, err
	}
	err := os.Remove(request.TargetPath)
	if os.IsNotExist(err) {
		err = nil
	}
	return &csi.NodeUnpublishVolumeResponse{}, err
}

func (d *driver) NodeUnstageVolume(
	_ context.Context, request *csi.NodeUnstageVolumeRequest,
) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, unmount(request.StagingTargetPath)
}

// NodeExpandVolume lets the device see that its file has grown, and then the file system that its device has.
func (d *driver) NodeExpandVolume(
	_ context.Context, request *csi.NodeExpandVolumeRequest,
) (*csi.NodeExpandVolumeResponse, error) {
	device, err := d.images.device(request.VolumeId)
	if err != nil {
		return nil, err
	}
	if device == "" {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not mounted", request.VolumeId)
	}
	if _, err := run("losetup", "--set-capacity", device); err != nil {
		return nil, err
	}
	if _, err := run("xfs_growfs", request.VolumePath); err != nil {
		return nil, err
	}
	bytes, err := d.images.size(request.VolumeId)
	return &csi.NodeExpandVolumeResponse{CapacityBytes: bytes}, err
}

func isMounted(place string) bool {
	said, err := run("findmnt", "--noheadings", "--output", "TARGET", "--mountpoint", place)
	return err == nil && strings.TrimSpace(said) != ""
}

func unmount(place string) error {
	if !isMounted(place) {
		return nil
	}
	_, err := run("umount", place)
	return err
}
