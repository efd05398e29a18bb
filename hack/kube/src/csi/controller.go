package main

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// XFS can't be smaller than 300 MiB. A storage may give more than was asked for.
const smallest = 320 << 20

func (d *driver) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, can := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
	} {
		call := &csi.ControllerServiceCapability_RPC{Type: can}
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: call},
		})
	}
	return answer, nil
}

// wanted is the size that a volume gets, or a refusal that says that no retry will help.
func (d *driver) wanted(capacity *csi.CapacityRange) (int64, error) {
	bytes := max(capacity.GetRequiredBytes(), smallest)
	if bytes > d.largest {
		return 0, status.Errorf(codes.OutOfRange, "a volume can have %d bytes at most, not %d", d.largest, bytes)
	}
	return bytes, nil
}

func (d *driver) CreateVolume(
	_ context.Context, request *csi.CreateVolumeRequest,
) (*csi.CreateVolumeResponse, error) {
	bytes, err := d.wanted(request.CapacityRange)
	if err != nil {
		return nil, err
	}
	have, err := d.images.size(request.Name)
	if err != nil {
		return nil, err
	}
	if have == 0 {
		source := request.GetVolumeContentSource().GetSnapshot().GetSnapshotId()
		if bytes, err = d.atLeast(source, bytes); err != nil {
			return nil, err
		}
		if err := d.images.create(request.Name, source, bytes); err != nil {
			return nil, err
		}
		have = bytes
	}
	made := &csi.Volume{VolumeId: request.Name, CapacityBytes: have, ContentSource: request.VolumeContentSource}
	return &csi.CreateVolumeResponse{Volume: made}, nil
}

// atLeast is the size of a volume that has to hold a snapshot, if one is named.
func (d *driver) atLeast(snapshot string, bytes int64) (int64, error) {
	if snapshot == "" {
		return bytes, nil
	}
	needed, err := d.images.size(snapshot)
	if err == nil && needed == 0 {
		err = status.Errorf(codes.NotFound, "there is no snapshot %s", snapshot)
	}
	return max(bytes, needed), err
}

func (d *driver) DeleteVolume(
	_ context.Context, request *csi.DeleteVolumeRequest,
) (*csi.DeleteVolumeResponse, error) {
	return &csi.DeleteVolumeResponse{}, d.images.remove(request.VolumeId)
}

func (d *driver) ValidateVolumeCapabilities(
	_ context.Context, request *csi.ValidateVolumeCapabilitiesRequest,
) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	confirmed := &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: request.VolumeCapabilities}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: confirmed}, nil
}

// ControllerExpandVolume enlarges the file; the file system is enlarged on the node.
func (d *driver) ControllerExpandVolume(
	_ context.Context, request *csi.ControllerExpandVolumeRequest,
) (*csi.ControllerExpandVolumeResponse, error) {
	bytes, err := d.wanted(request.CapacityRange)
	if err != nil {
		return nil, err
	}
	have, err := d.images.size(request.VolumeId)
	if err != nil {
		return nil, err
	}
	if have == 0 {
		return nil, status.Errorf(codes.NotFound, "there is no volume %s", request.VolumeId)
	}
	if bytes = max(bytes, have); bytes > have {
		err = os.Truncate(d.images.path(request.VolumeId), bytes)
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: bytes, NodeExpansionRequired: true}, err
}

func (d *driver) CreateSnapshot(
	_ context.Context, request *csi.CreateSnapshotRequest,
) (*csi.CreateSnapshotResponse, error) {
	id := request.Name + "@" + request.SourceVolumeId
	have, err := d.images.size(id)
	if err == nil && have == 0 {
		err = d.copyAtOneMoment(request.SourceVolumeId, id)
	}
	if err != nil {
		return nil, err
	}
	found, err := d.snapshot(id)
	return &csi.CreateSnapshotResponse{Snapshot: found}, err
}

func (d *driver) copyAtOneMoment(volume, snapshot string) error {
	bytes, err := d.images.size(volume)
	if err != nil {
		return err
	}
	if bytes == 0 {
		return status.Errorf(codes.NotFound, "there is no volume %s", volume)
	}
	thaw, err := d.images.freeze(volume)
	if err != nil {
		return err
	}
	return errors.Join(d.images.create(snapshot, volume, bytes), thaw())
}

func (d *driver) snapshot(id string) (*csi.Snapshot, error) {
	found, err := os.Stat(d.images.path(id))
	if err != nil {
		return nil, err
	}
	_, volume, _ := strings.Cut(id, "@")
	return &csi.Snapshot{
		SnapshotId: id, SourceVolumeId: volume, SizeBytes: found.Size(),
		CreationTime: timestamppb.New(found.ModTime()), ReadyToUse: true,
	}, nil
}

// ListSnapshots is asked by the snapshotter for one snapshot, whose name somebody wrote into a VolumeSnapshotContent.
func (d *driver) ListSnapshots(
	_ context.Context, request *csi.ListSnapshotsRequest,
) (*csi.ListSnapshotsResponse, error) {
	answer := &csi.ListSnapshotsResponse{}
	if found, err := d.snapshot(request.SnapshotId); request.SnapshotId != "" && err == nil {
		answer.Entries = append(answer.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: found})
	}
	return answer, nil
}

func (d *driver) DeleteSnapshot(
	_ context.Context, request *csi.DeleteSnapshotRequest,
) (*csi.DeleteSnapshotResponse, error) {
	return &csi.DeleteSnapshotResponse{}, d.images.remove(request.SnapshotId)
}
