
  // Zoom and pan: a view is the visible part of a unit square, {x, y, size}.

  const MAX_ZOOM = 64;

  const zoomable = (element, buttons, changed) => {
    const view = { x: 0, y: 0, size: 1 };
    let drag = null;

    const move = (x, y, size) => {
      view.size = clamp(size, 1 / MAX_ZOOM, 1);
      view.x = clamp(x, 0, 1 - view.size);
      view.y = clamp(y, 0, 1 - view.size);
      element.classList.toggle("zoomed", view.size < 1);
      changed(view);
    };

    // Zoom by a factor; the point at a share of the width and height stays.
    const zoom = (factor, across = 0.5, down = 0.5) => {
      const size = clamp(view.size / factor, 1 / MAX_ZOOM, 1);
      const lost = view.size - size;
      move(view.x + lost * across, view.y + lost * down, size);
    };
    const reset = () => move(0, 0, 1);
    const pan = (right, down) => move(view.x + right * view.size, view.y + down * view.size, view.size);

    // Coordinates of the pointer in the unit square; null outside of the view.
    const at = (event, box) => {
      const [across, down] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
      if (across < 0 || across >= 1 || down < 0 || down >= 1) return null;
      return [view.x + across * view.size, view.y + down * view.size, across, down];
    };

    element.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        const found = at(event, element.getBoundingClientRect());
        if (found) zoom(event.deltaY < 0 ? 1.25 : 0.8, found[2], found[3]);
      },
      { passive: false },
    );
    element.addEventListener("pointerdown", (event) => {
      if (view.size < 1) drag = { x: event.clientX, y: event.clientY, moved: false };
    });
    element.addEventListener("pointermove", (event) => {
      if (!drag) return;
      const box = element.getBoundingClientRect();
      const [right, down] = [drag.x - event.clientX, drag.y - event.clientY];
      if (!drag.moved && Math.hypot(right, down) < 5) return;
      element.setPointerCapture(event.pointerId);
      Object.assign(drag, { x: event.clientX, y: event.clientY, moved: true });
      pan(right / box.width, down / box.height);
    });
    const drop = () => {
      if (drag?.moved) element.addEventListener("click", (e) => e.stopImmediatePropagation(), { once: true, capture: true });
      drag = null;
    };
    element.addEventListener("pointerup", drop);
    element.addEventListener("pointercancel", () => {
      drag = null;
    });
    addButton(buttons, "+", () => zoom(2)).setAttribute("aria-label", "Zoom in");
    addButton(buttons, "−", () => zoom(0.5)).setAttribute("aria-label", "Zoom out");
    addButton(buttons, "Whole", reset).setAttribute("aria-label", "Show the whole picture");
    return { view, zoom, reset, pan, at, move, dragging: () => Boolean(drag?.moved) };
  };
