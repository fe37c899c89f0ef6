document.title = 'ferrum-edge';
