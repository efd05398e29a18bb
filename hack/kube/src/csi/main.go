// Command loop-driver is a CSI driver whose volumes have a real size: each is an image file with XFS in it, mounted by a
// loop device. It runs on each node of the machine; that of the first node also answers the sidecars. XFS, because it grows while it is mounted without CAP_SYS_RESOURCE, which root lacks in
// many containers; ext4 does not. The files are in one folder that outlives the cluster, as a storage does.
//
// It also tells the kubelet that it is there, which is what node-driver-registrar does elsewhere.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const driverName = "loop.penstock.dev"

// driver answers what the sidecars and the kubelet ask. Snapshots and volumes are the files of `images`.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer

	images   images
	node     string
	endpoint string
	largest  int64
}

func main() {
	d := &driver{}
	flag.StringVar(&d.images.folder, "folder", "", "where volumes and snapshots are kept")
	flag.StringVar(&d.node, "node", "", "the name of this node")
	flag.StringVar(&d.endpoint, "endpoint", "", "socket for the sidecars and the kubelet")
	flag.Int64Var(&d.largest, "largest", 8<<30, "a volume may have so many bytes")
	watched := flag.String("registration", "", "socket in the folder where the kubelet looks for plugins")
	flag.Parse()
	if err := d.images.make(); err != nil {
		log.Fatal(err)
	}
	failed := make(chan error)
	serve(failed, d.endpoint, func(server *grpc.Server) {
		csi.RegisterIdentityServer(server, d)
		csi.RegisterControllerServer(server, d)
		csi.RegisterNodeServer(server, d)
	})
	serve(failed, *watched, func(server *grpc.Server) { registration.RegisterRegistrationServer(server, d) })
	log.Fatal(<-failed)
}

// serve answers on a socket in the background; an error that ends it goes to the channel.
func serve(failed chan<- error, socket string, register func(*grpc.Server)) {
	_ = os.Remove(socket) // of a driver that was killed
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(logged))
	register(server)
	go func() { failed <- server.Serve(listener) }()
}

func logged(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	answer, err := handle(ctx, request)
	if err != nil {
		log.Printf("%s: %v", info.FullMethod, err)
	}
	return answer, err
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: driverName, VendorVersion: "1"}, nil
}

func (d *driver) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	controller := &csi.PluginCapability_Service_{
		Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
	}
	online := &csi.PluginCapability_VolumeExpansion_{
		VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE},
	}
	return &csi.GetPluginCapabilitiesResponse{
		Capabilities: []*csi.PluginCapability{{Type: controller}, {Type: online}},
	}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// GetInfo is the kubelet's question to each socket that it finds.
func (d *driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: driverName, Endpoint: d.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (d *driver) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered: %t %s", status.PluginRegistered, status.Error)
	return &registration.RegistrationStatusResponse{}, nil
}
